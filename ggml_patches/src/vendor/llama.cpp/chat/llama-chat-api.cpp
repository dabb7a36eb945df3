// The C interface of llama-chat.h

#include "llama-chat.h"

#include "chat-limits.h"

#include "chat.h"
#include "json-schema-to-grammar.h"
#include "jinja/limits.h"
#include "jinja/runtime.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

using json = common_json;

struct llama_chat_format {
    common_chat_templates_ptr templates;
    bool                      supports_parallel_calls = false;
};

struct llama_chat_parser {
    common_chat_parser_params params;
};

namespace {

// what the caller asked for cannot be
struct invalid_request : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// a text that is no reply of the format
struct unparsed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// a copy that outlives this library's strings
void write(char ** out, const std::string & text) {
    *out = (char *) malloc(text.size() + 1);
    if (*out) {
        memcpy(*out, text.c_str(), text.size() + 1);
    }
}

// run a function that writes an answer; whatever it throws becomes a status and a text
template <typename F>
int32_t guarded(char ** out, F && function) {
    if (!out) {
        return LLAMA_CHAT_INVALID;
    }
    *out = nullptr;
    const auto fail = [out](llama_chat_status status, const char * text) {
        try {
            write(out, text);
        } catch (...) {
            // the status says enough
        }
        return status;
    };
    try {
        function();
        return LLAMA_CHAT_OK;
    } catch (const jinja::limit_exceeded & e) {
        return fail(LLAMA_CHAT_LIMIT, e.what());
    } catch (const chat_limits::exceeded & e) {
        return fail(LLAMA_CHAT_LIMIT, e.what());
    } catch (const jinja::refusal & e) {
        return fail(LLAMA_CHAT_REFUSED, e.what());
    } catch (const invalid_request & e) {
        return fail(LLAMA_CHAT_INVALID, e.what());
    } catch (const unparsed & e) {
        return fail(LLAMA_CHAT_UNPARSED, e.what());
    } catch (const std::bad_alloc &) {
        return fail(LLAMA_CHAT_FAILED, "out of memory");
    } catch (const std::exception & e) {
        return fail(LLAMA_CHAT_FAILED, e.what());
    } catch (...) {
        return fail(LLAMA_CHAT_FAILED, "unknown error");
    }
}

json parse_json(const char * text, const char * what) {
    if (!text) {
        throw invalid_request(std::string(what) + " is missing");
    }
    chat_limits::check_depth(text, what);
    try {
        return json::parse(text);
    } catch (const common_json_error & e) {
        throw invalid_request(std::string(what) + " is no JSON: " + e.what());
    }
}

// what the caller can get wrong is told apart from what the template does
template <typename F>
auto as_request(F && function) -> decltype(function()) {
    try {
        return function();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const chat_limits::exceeded &) {
        throw;
    } catch (const std::exception & e) {
        throw invalid_request(e.what());
    }
}

// a reply that is to follow a schema follows all of it, or is not made
void check_grammar(const json & schema) {
    chat_limits::check_schema(schema);
    const auto missing = json_schema_not_in_grammar(schema);
    if (!missing.empty()) {
        throw invalid_request("the schema cannot become a grammar: " + missing.front());
    }
}

common_chat_templates_inputs read_request(const json & request, bool supports_parallel_calls) {
    if (!request.is_object() || !request.contains("messages")) {
        throw invalid_request("the request has no messages");
    }
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(request.at("messages"));
    if (request.contains("tools")) {
        inputs.tools = common_chat_tools_parse_oaicompat(request.at("tools"));
    }
    inputs.tool_choice           = common_chat_tool_choice_parse_oaicompat(request.value("tool_choice", "auto"));
    inputs.parallel_tool_calls   = request.value("parallel_tool_calls", supports_parallel_calls);
    inputs.grammar               = request.value("grammar", "");
    inputs.reasoning_format      = common_reasoning_format_from_name(request.value("reasoning_format", "none"));
    inputs.enable_thinking       = request.value("enable_thinking", true);
    inputs.add_generation_prompt = request.value("add_generation_prompt", true);
    if (request.contains("continue_final_message")) {
        inputs.continue_final_message = common_chat_continuation_parse(request.at("continue_final_message"));
    }
    if (request.contains("json_schema")) {
        const json & schema = request.at("json_schema");
        check_grammar(schema);
        inputs.json_schema = schema.empty() ? std::string(R"({"type":"object"})") : schema.dump();
    }
    if (request.contains("chat_template_kwargs")) {
        for (const auto & [key, value] : request.at("chat_template_kwargs").items()) {
            inputs.chat_template_kwargs[key] = value.dump();
        }
    }
    for (const auto & tool : inputs.tools) {
        const json schema = json::parse(tool.parameters);
        chat_limits::check_schema(schema);
        if (schema.is_object() && !schema.empty()) {
            try {
                common_chat_schema_from_json(schema);
            } catch (const std::exception & e) {
                throw invalid_request("the parameters of the tool " + tool.name + " cannot be used: " + e.what());
            }
        }
    }
    return inputs;
}

const char * trigger_name(common_grammar_trigger_type type) {
    switch (type) {
        case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:        return "token";
        case COMMON_GRAMMAR_TRIGGER_TYPE_WORD:         return "word";
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:      return "pattern";
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: return "pattern_full";
    }
    return "";
}

json to_json(const common_chat_params & params, bool plain) {
    json triggers = json::array();
    for (const auto & trigger : params.grammar_triggers) {
        triggers.push_back({{"type", trigger_name(trigger.type)}, {"value", trigger.value}});
    }
    return json{
        {"prompt",             params.prompt},
        {"grammar",            params.grammar},
        {"grammar_lazy",       params.grammar_lazy},
        {"grammar_triggers",   triggers},
        {"generation_prompt",  params.generation_prompt},
        {"preserved_tokens",   params.preserved_tokens},
        {"additional_stops",   params.additional_stops},
        {"supports_thinking",  params.supports_thinking},
        {"thinking_start_tag", params.thinking_start_tag},
        {"thinking_end_tags",  params.thinking_end_tags},
        {"plain",              plain},
    };
}

json to_json(const common_chat_msg & message) {
    json calls = json::array();
    for (const auto & call : message.tool_calls) {
        calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    }
    return json{
        {"content",           message.render_content("")},
        {"reasoning_content", message.reasoning_content},
        {"tool_calls",        calls},
    };
}

} // namespace

int32_t llama_chat_abi(void) {
    return LLAMA_CHAT_ABI;
}

void llama_chat_string_free(char * text) {
    free(text);
}

int32_t llama_chat_format_init(
        const char * source, const char * bos, const char * eos, struct llama_chat_format ** format, char ** error) {
    return guarded(error, [&] {
        if (!source || !bos || !eos || !format) {
            throw invalid_request("an argument is missing");
        }
        *format = nullptr;
        if (strlen(source) > chat_limits::MAX_TEMPLATE) {
            throw chat_limits::exceeded("the template is longer than " + std::to_string(chat_limits::MAX_TEMPLATE) + " bytes");
        }
        const jinja::limits limits(chat_limits::MAX_SECONDS, chat_limits::MIN_BYTES);
        auto made = std::make_unique<llama_chat_format>();
        made->templates = common_chat_templates_init(nullptr, source, bos, eos);
        made->supports_parallel_calls = common_chat_templates_get_caps(made->templates.get())["supports_parallel_tool_calls"];
        *format = made.release();
    });
}

void llama_chat_format_free(struct llama_chat_format * format) {
    delete format;
}

int32_t llama_chat_caps(const struct llama_chat_format * format, char ** answer) {
    return guarded(answer, [&] {
        if (!format) {
            throw invalid_request("an argument is missing");
        }
        write(answer, json(common_chat_templates_get_caps(format->templates.get())).dump());
    });
}

int32_t llama_chat_apply(
        const struct llama_chat_format * format, const char * request, struct llama_chat_parser ** parser, char ** answer) {
    int32_t status = guarded(answer, [&] {
        if (!format || !parser) {
            throw invalid_request("an argument is missing");
        }
        *parser = nullptr;
        const json asked = parse_json(request, "the request");
        const auto inputs = as_request([&] { return read_request(asked, format->supports_parallel_calls); });

        const jinja::limits limits(chat_limits::MAX_SECONDS, chat_limits::max_bytes(strlen(request)));
        const common_chat_params params = common_chat_templates_apply(format->templates.get(), inputs);

        auto made = std::make_unique<llama_chat_parser>();
        made->params                  = common_chat_parser_params(params);
        made->params.reasoning_format = inputs.reasoning_format;
        made->params.is_continuation  = inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE;
        if (!params.parser.empty()) {
            made->params.parser.load(params.parser);
        }
        const bool plain = params.parser.empty();
        write(answer, to_json(params, plain).dump_safe());
        *parser = made.release();
    });
    return status;
}

void llama_chat_parser_free(struct llama_chat_parser * parser) {
    delete parser;
}

int32_t llama_chat_parse(
        const struct llama_chat_parser * parser, const char * text, size_t n_text, bool is_partial, char ** answer) {
    return guarded(answer, [&] {
        if (!parser || !text) {
            throw invalid_request("an argument is missing");
        }
        common_chat_msg message;
        try {
            message = common_chat_parse(std::string(text, n_text), is_partial, parser->params);
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            throw unparsed(e.what());
        }
        write(answer, to_json(message).dump_safe());
    });
}

int32_t llama_chat_schema_to_grammar(const char * schema, char ** answer) {
    return guarded(answer, [&] {
        const json parsed = parse_json(schema, "the schema");
        write(answer, as_request([&] {
            check_grammar(parsed);
            return json_schema_to_grammar(parsed);
        }));
    });
}
