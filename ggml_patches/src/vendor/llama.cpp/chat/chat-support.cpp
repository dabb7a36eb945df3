// What the chat code of common uses of common.cpp and log.cpp. These two would bring in the rest of the library, which takes
// longer to compile than libllama without its models.

#include "common.h"
#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <stdexcept>

std::string string_format(const char * fmt, ...) {
    va_list args;
    va_list again;
    va_start(args, fmt);
    va_copy(again, args);
    const int size = vsnprintf(nullptr, 0, fmt, args);
    va_end(args);
    std::string text(size < 0 ? 0 : size + 1, '\0');
    if (!text.empty()) {
        vsnprintf(&text[0], text.size(), fmt, again);
        text.pop_back();
    }
    va_end(again);
    return text;
}

std::string string_strip(const std::string & str) {
    size_t start = 0;
    size_t end   = str.size();
    while (start < end && std::isspace((unsigned char) str[start])) {
        start++;
    }
    while (end > start && std::isspace((unsigned char) str[end - 1])) {
        end--;
    }
    return str.substr(start, end - start);
}

void string_replace_all(std::string & s, const std::string & search, const std::string & replace) {
    if (search.empty()) {
        return;
    }
    std::string text;
    size_t start = 0;
    for (size_t pos; (pos = s.find(search, start)) != std::string::npos; start = pos + search.size()) {
        text.append(s, start, pos - start);
        text += replace;
    }
    text.append(s, start, std::string::npos);
    s = std::move(text);
}

std::string string_join(const std::vector<std::string> & values, const std::string & separator) {
    std::string text;
    for (size_t i = 0; i < values.size(); i++) {
        text += (i > 0 ? separator : "") + values[i];
    }
    return text;
}

std::vector<std::string> string_split(const std::string & str, const std::string & delimiter) {
    std::vector<std::string> parts;
    size_t start = 0;
    for (size_t pos; (pos = str.find(delimiter, start)) != std::string::npos; start = pos + delimiter.size()) {
        parts.push_back(str.substr(start, pos - start));
    }
    parts.push_back(str.substr(start));
    return parts;
}

std::string string_repeat(const std::string & str, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; i++) {
        text += str;
    }
    return text;
}

// formats are made from text here, never from a model

std::vector<llama_token> common_tokenize(const struct llama_vocab *, const std::string &, bool, bool) {
    throw std::logic_error("this library has no tokens");
}

std::string common_token_to_piece(const struct llama_vocab *, llama_token, bool) {
    throw std::logic_error("this library has no tokens");
}

// nothing is logged: what matters is told to the caller

int common_log_get_verbosity_thold(void) {
    return -1;
}

struct common_log * common_log_main() {
    return nullptr;
}

void common_log_add(struct common_log *, enum ggml_log_level, const char *, ...) {
}
