#include "chat-limits.h"

namespace chat_limits {

void check_depth(const char * text, const char * what) {
    int  depth   = 0;
    bool in_text = false;
    for (const char * c = text; *c; c++) {
        if (in_text) {
            if (*c == '\\' && c[1]) {
                c++;
            } else if (*c == '"') {
                in_text = false;
            }
        } else if (*c == '"') {
            in_text = true;
        } else if (*c == '[' || *c == '{') {
            if (++depth > MAX_DEPTH) {
                throw exceeded(std::string(what) + " nests deeper than " + std::to_string(MAX_DEPTH));
            }
        } else if (*c == ']' || *c == '}') {
            depth--;
        }
    }
}

static void check_node(const common_json & node, int depth, size_t & n_refs) {
    if (depth > MAX_SCHEMA_DEPTH) {
        throw exceeded("the schema nests deeper than " + std::to_string(MAX_SCHEMA_DEPTH));
    }
    if (node.is_array()) {
        for (const auto & item : node) {
            check_node(item, depth + 1, n_refs);
        }
        return;
    }
    if (!node.is_object()) {
        return;
    }
    if (node.size() > MAX_KEYS) {
        throw exceeded("an object of the schema has more than " + std::to_string(MAX_KEYS) + " keys");
    }
    for (const auto & [key, value] : node.items()) {
        if (key.size() > MAX_NAME) {
            throw exceeded("a key of the schema has more than " + std::to_string(MAX_NAME) + " bytes");
        }
        if (key == "pattern" && value.is_string() && value.get<std::string>().size() > MAX_PATTERN) {
            throw exceeded("a pattern of the schema has more than " + std::to_string(MAX_PATTERN) + " bytes");
        }
        if (key == "$ref" && ++n_refs > MAX_REFS) {
            throw exceeded("the schema has more than " + std::to_string(MAX_REFS) + " references");
        }
        check_node(value, depth + 1, n_refs);
    }
}

void check_schema(const common_json & schema) {
    size_t n_refs = 0;
    check_node(schema, 0, n_refs);
    if (schema.dump_safe().size() > MAX_SCHEMA) {
        throw exceeded("the schema has more than " + std::to_string(MAX_SCHEMA) + " bytes");
    }
}

} // namespace chat_limits
