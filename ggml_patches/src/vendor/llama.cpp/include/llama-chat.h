#pragma once

// The chat formats of models: from messages and tools to a prompt and a grammar, and from the text of a reply to its parts.
//
// This is a C interface to common/chat, for programs that are not written in C++. It is a library of its own (llama-chat) that
// needs no model: a format is made from the text of a template.
//
//   llama_chat_format_init(template, bos, eos, &format, &error);
//   llama_chat_apply(format, request, &parser, &answer);          // answer: {"prompt": ..., "grammar": ..., ...}
//   ... generate text ...
//   llama_chat_parse(parser, text, n_text, is_partial, &answer);  // answer: {"content": ..., "tool_calls": [...]}
//
// A template comes with a model, so it is a program of unknown origin: its size, its depth, the time it takes and the memory it
// uses are limited. The same holds for schemas, which come with requests.
//
// Nothing is thrown or printed. Functions return one of LLAMA_CHAT_*. What they write to their last argument is the answer as
// JSON, or why there is none as text, both in UTF-8, to be freed by llama_chat_string_free; NULL when memory did not suffice.
// Formats and parsers never change: any number of threads may use them.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && !defined(__MINGW32__)
#    ifdef LLAMA_CHAT_BUILD
#        define LLAMA_CHAT_API __declspec(dllexport)
#    else
#        define LLAMA_CHAT_API __declspec(dllimport)
#    endif
#else
#    define LLAMA_CHAT_API __attribute__((visibility("default")))
#endif

// raised with every change of this file that a caller can notice
#define LLAMA_CHAT_ABI 1

#ifdef __cplusplus
extern "C" {
#endif

enum llama_chat_status {
    LLAMA_CHAT_OK       =  0,
    LLAMA_CHAT_INVALID  = -1, // bad arguments: a request or a schema that is none, or that asks for what cannot be
    LLAMA_CHAT_REFUSED  = -2, // the template refuses the messages; the text is its own
    LLAMA_CHAT_LIMIT    = -3, // the template or the schema is too large, or takes too long
    LLAMA_CHAT_UNPARSED = -4, // the text is no reply of this format
    LLAMA_CHAT_FAILED   = -5, // the template is not valid or cannot render the messages; or memory did not suffice
};

struct llama_chat_format;
struct llama_chat_parser;

LLAMA_CHAT_API int32_t llama_chat_abi(void);

LLAMA_CHAT_API void llama_chat_string_free(char * text);

// a format from a template
//   source    Jinja
//   bos, eos  text of these tokens, "" for none
LLAMA_CHAT_API int32_t llama_chat_format_init(
        const char * source, const char * bos, const char * eos, struct llama_chat_format ** format, char ** error);

// NULL is fine
LLAMA_CHAT_API void llama_chat_format_free(struct llama_chat_format * format);

// what the template can do: {"supports_tools": true, ...}
LLAMA_CHAT_API int32_t llama_chat_caps(const struct llama_chat_format * format, char ** answer);

// render messages
//   request  {"messages": [...]} as in OpenAI's API, and, all optional: "tools", "tool_choice" ("auto", "none", "required"),
//            "parallel_tool_calls", "json_schema", "grammar", "reasoning_format", "enable_thinking", "add_generation_prompt",
//            "continue_final_message", "chat_template_kwargs"
//   parser   reads the reply; to be freed by llama_chat_parser_free
//   answer   {"prompt", "grammar", "grammar_lazy", "grammar_triggers": [{"type", "value"}], "generation_prompt",
//            "preserved_tokens", "additional_stops", "supports_thinking", "thinking_start_tag", "thinking_end_tags", "plain"}.
//            A grammar that is not lazy begins with the generation prompt. "plain" tells that every reply is content as it is.
LLAMA_CHAT_API int32_t llama_chat_apply(
        const struct llama_chat_format * format, const char * request, struct llama_chat_parser ** parser, char ** answer);

// NULL is fine
LLAMA_CHAT_API void llama_chat_parser_free(struct llama_chat_parser * parser);

// the parts of a reply: {"content", "reasoning_content", "tool_calls": [{"id", "name", "arguments"}]}; arguments are text
//   is_partial  more text may follow
LLAMA_CHAT_API int32_t llama_chat_parse(
        const struct llama_chat_parser * parser, const char * text, size_t n_text, bool is_partial, char ** answer);

// the GBNF, as text, of a JSON schema
LLAMA_CHAT_API int32_t llama_chat_schema_to_grammar(const char * schema, char ** answer);

#ifdef __cplusplus
}
#endif
