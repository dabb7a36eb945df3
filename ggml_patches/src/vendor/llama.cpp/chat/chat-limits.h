#pragma once

#include "json.h"

#include <cstddef>
#include <stdexcept>
#include <string>

// How large the templates, requests and schemas may be that the C interface takes.
namespace chat_limits {

struct exceeded : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr size_t MAX_TEMPLATE   = 256 * 1024; // bytes
constexpr double MAX_SECONDS    = 5.0;        // of the processor, for all renderings of one call
constexpr size_t MIN_BYTES      = 64u << 20;  // of values and texts that a template may hold
constexpr int    MAX_DEPTH      = 128;        // of the JSON of a request
constexpr size_t MAX_SCHEMA     = 64 * 1024;  // bytes
constexpr int    MAX_SCHEMA_DEPTH = 64;
constexpr size_t MAX_KEYS       = 256;        // of one object of a schema
constexpr size_t MAX_NAME       = 256;        // bytes of such a key
constexpr size_t MAX_PATTERN    = 1024;       // bytes of a regular expression
constexpr size_t MAX_REFS       = 256;

// bytes that a template may hold to render a request: each of its levels has a copy of the text
constexpr size_t max_bytes(size_t n_request) {
    return MIN_BYTES + 16 * n_request;
}

// before the text is parsed: what is made of it is walked by recursive functions
void check_depth(const char * text, const char * what);

// before a schema becomes a grammar
void check_schema(const common_json & schema);

} // namespace chat_limits
