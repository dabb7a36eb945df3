// The C interface of the chat code: what is right, and every way to fail. Needs no model.

#include "llama-chat.h"

#include "check.h"

#include <cstring>
#include <string>

static const char * TEMPLATE =
    "{%- for message in messages -%}"
    "{%- if message.role == 'stranger' -%}{{- raise_exception('no strangers') -}}{%- endif -%}"
    "{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

// the text of an answer, which is freed
static std::string take(char * text) {
    CHECK(text != nullptr);
    const std::string copy = text;
    llama_chat_string_free(text);
    return copy;
}

static bool has(const std::string & text, const char * part) {
    return text.find(part) != std::string::npos;
}

static void test_round_trip(const llama_chat_format * format) {
    llama_chat_parser * parser = nullptr;
    char * answer = nullptr;
    CHECK(llama_chat_apply(format, R"({"messages": [{"role": "user", "content": "Hi"}]})", &parser, &answer) == LLAMA_CHAT_OK);
    CHECK(has(take(answer), R"("prompt":"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")"));

    CHECK(llama_chat_parse(parser, "Hello", 5, true, &answer) == LLAMA_CHAT_OK);
    CHECK(has(take(answer), R"("content":"Hello")"));
    CHECK(llama_chat_parse(parser, nullptr, 0, true, &answer) == LLAMA_CHAT_INVALID);
    take(answer);
    llama_chat_parser_free(parser);
}

static void test_failures(const llama_chat_format * format) {
    llama_chat_parser * parser = nullptr;
    char * answer = nullptr;
    for (const char * request : {"", "{", "[]", "{}", R"({"messages": 1})", R"({"messages": [{"content": "x"}]})"}) {
        CHECK(llama_chat_apply(format, request, &parser, &answer) == LLAMA_CHAT_INVALID);
        CHECK(parser == nullptr);
        take(answer);
    }
    CHECK(llama_chat_apply(format, R"({"messages": [{"role": "stranger", "content": ""}]})", &parser, &answer) == LLAMA_CHAT_REFUSED);
    CHECK(take(answer) == "no strangers");
    CHECK(llama_chat_apply(format, std::string(1000, '[').c_str(), &parser, &answer) == LLAMA_CHAT_LIMIT);
    take(answer);
    CHECK(llama_chat_apply(nullptr, "{}", &parser, &answer) == LLAMA_CHAT_INVALID);
    take(answer);

    llama_chat_format * none = nullptr;
    CHECK(llama_chat_format_init("{% for %}", "", "", &none, &answer) == LLAMA_CHAT_FAILED);
    take(answer);
    const std::string deep = "{{ " + std::string(50000, '(') + "1" + std::string(50000, ')') + " }}";
    CHECK(llama_chat_format_init(deep.c_str(), "", "", &none, &answer) == LLAMA_CHAT_LIMIT);
    take(answer);
    CHECK(none == nullptr);
}

static void test_schemas() {
    char * answer = nullptr;
    CHECK(llama_chat_schema_to_grammar(R"({"type": "integer"})", &answer) == LLAMA_CHAT_OK);
    CHECK(has(take(answer), "root ::="));
    CHECK(llama_chat_schema_to_grammar(R"({"type": "string", "pattern": "open"})", &answer) == LLAMA_CHAT_INVALID);
    CHECK(has(take(answer), "open"));
    const std::string large = R"({"enum": [")" + std::string(100000, 'x') + "\"]}";
    CHECK(llama_chat_schema_to_grammar(large.c_str(), &answer) == LLAMA_CHAT_LIMIT);
    take(answer);
}

int main() {
    CHECK(llama_chat_abi() == LLAMA_CHAT_ABI);
    llama_chat_format * format = nullptr;
    char * error = nullptr;
    CHECK(llama_chat_format_init(TEMPLATE, "<s>", "</s>", &format, &error) == LLAMA_CHAT_OK);
    CHECK(error == nullptr);
    test_round_trip(format);
    test_failures(format);
    llama_chat_format_free(format);
    llama_chat_format_free(nullptr);
    llama_chat_parser_free(nullptr);
    test_schemas();
    printf("OK\n");
}
