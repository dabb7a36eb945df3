// What trees cost on a device: c(n), the step with the mask and the statistics made by the host or in the graph, bytes over
// the bus, drafts of heads, and whether graphs stay as they are when the tree changes.
//
//   bench-tree-device model.gguf [--heads heads.gguf] [--device NAME|none] [--layers N] [--threads N]
//                     [--contexts 64,4096] [--mask-contexts 4096,32768] [--repeats 40] [--seconds 15] [--json out.json]
//
// Prints one table of medians between quartiles. What is compared takes turns. --seconds bounds each section. Exit status 1:
// a tree that only differs in shape made the library build a graph.

#include "bench-report.h"
#include "device-bench.h"

#include "ggml-backend.h"
#include "llama-heads.h"

#include <cstring>
#include <map>
#include <queue>
#include <string>
#include <thread>

struct options {
    const char *         model   = nullptr;
    const char *         heads   = nullptr;
    const char *         device  = nullptr;
    const char *         json    = nullptr;
    int32_t              layers  = -1;
    int32_t              threads = std::max(1, (int32_t) std::thread::hardware_concurrency());
    int32_t              repeats = 40;
    double               seconds = 15;
    std::vector<int32_t> contexts      = { 64, 4096 };
    std::vector<int32_t> mask_contexts = { 4096, 32768 };
};

static std::vector<int32_t> numbers(const char * text) {
    std::vector<int32_t> res;
    for (; *text; text += *text == ',') {
        char * end;
        res.push_back((int32_t) strtol(text, &end, 10));
        if (end == text || res.back() < 1) {
            fprintf(stderr, "bench-tree-device: no list of numbers: %s\n", text);
            exit(2);
        }
        text = end;
    }
    return res;
}

static options read_arguments(int argc, char ** argv) {
    options o;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name[0] != '-' && !o.model) {
            o.model = argv[i];
        } else if (i + 1 < argc && name == "--heads")         { o.heads   = argv[++i];
        } else if (i + 1 < argc && name == "--device")        { o.device  = argv[++i];
        } else if (i + 1 < argc && name == "--json")          { o.json    = argv[++i];
        } else if (i + 1 < argc && name == "--layers")        { o.layers  = numbers(argv[++i])[0];
        } else if (i + 1 < argc && name == "--threads")       { o.threads = numbers(argv[++i])[0];
        } else if (i + 1 < argc && name == "--repeats")       { o.repeats = numbers(argv[++i])[0];
        } else if (i + 1 < argc && name == "--seconds")       { o.seconds = numbers(argv[++i])[0];
        } else if (i + 1 < argc && name == "--contexts")      { o.contexts      = numbers(argv[++i]);
        } else if (i + 1 < argc && name == "--mask-contexts") { o.mask_contexts = numbers(argv[++i]);
        } else {
            fprintf(stderr, "bench-tree-device: cannot use %s; the head of its source tells the usage\n", argv[i]);
            exit(2);
        }
    }
    if (!o.model) {
        fprintf(stderr, "usage: %s model.gguf [options]\n", argv[0]);
        exit(2);
    }
    return o;
}

static std::string text(const char * format, double a, double b = 0) {
    char buffer[128];
    snprintf(buffer, sizeof(buffer), format, a, b);
    return buffer;
}

// what a step over n tokens costs, next to one over a single token
static void measure_curve(bench & b, const options & o, report & out, int32_t n_prefix) {
    out.section("c(n), context " + std::to_string(n_prefix), "milliseconds of a step, and c(n)/c(1)");
    auto ctx = b.make(n_prefix);
    if (!ctx) {
        out.fact("-", "not enough memory");
        return;
    }
    b.fill(ctx.get(), n_prefix);
    std::map<int32_t, std::vector<double>> times;
    rounds(o.repeats, o.seconds, [&](bool counts) {
        for (const int32_t n : { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 }) {
            const double ms = b.step(ctx.get(), n);
            if (counts) {
                times[n].push_back(ms);
            }
        }
    });
    const double one = spread::of(times[1]).median;
    for (const auto & [n, values] : times) {
        const spread s = spread::of(values);
        out.row("n = " + std::to_string(n), s, "ms", text("%.2fx", s.median/one));
    }
}

// the same step with the mask and the statistics made in all four ways
static void measure_variants(bench & b, const options & o, report & out, int32_t n_prefix) {
    static const variant variants[] = {
        { "mask and statistics by the host", "0", "0" },
        { "TREE_MASK",                       "1", "0" },
        { "TOPK_STATS",                      "0", "1" },
        { "TREE_MASK and TOPK_STATS",        "1", "1" },
    };
    std::vector<context_ptr> contexts;
    for (const auto & v : variants) {
        auto ctx = b.make(n_prefix, v);
        if (!ctx) {
            out.section("step, context " + std::to_string(n_prefix));
            out.fact("-", "not enough memory");
            return;
        }
        if (contexts.empty()) {
            b.fill(ctx.get(), n_prefix);
        } else {
            bench::copy_prefix(contexts[0].get(), ctx.get());
        }
        contexts.push_back(std::move(ctx));
    }
    for (const int32_t n : { 16, 64 }) {
        out.section("step, context " + std::to_string(n_prefix) + ", " + std::to_string(n) + " nodes",
            "milliseconds; KB per step to and from the device; where it was done");
        std::vector<double> times[4];
        double              sent[4] = {}, fetched[4] = {};
        rounds(o.repeats, o.seconds/2, [&](bool counts) {
            for (size_t i = 0; i < contexts.size(); ++i) {
                auto * ctx = contexts[i].get();
                const int64_t sent_before = llama_tree_n_bytes_sent(ctx), fetched_before = llama_tree_n_bytes_fetched(ctx);
                const double ms = b.step(ctx, n);
                if (counts) {
                    times[i].push_back(ms);
                    sent   [i] += (double) (llama_tree_n_bytes_sent   (ctx) - sent_before);
                    fetched[i] += (double) (llama_tree_n_bytes_fetched(ctx) - fetched_before);
                }
            }
        });
        for (size_t i = 0; i < contexts.size(); ++i) {
            const auto * ctx = contexts[i].get();
            const double n_steps = (double) times[i].size();
            std::string note = text("to %.1f KB, from %.1f KB", sent[i]/n_steps/1e3, fetched[i]/n_steps/1e3);
            note += llama_tree_mask_on_device (ctx) ? "; mask: operation" : "; mask: host";
            note += llama_tree_stats_on_device(ctx) ? ", statistics: operation" : ", statistics: host";
            out.row(variants[i].name, spread::of(times[i]), "ms", note);
        }
    }
}

// the nodes most likely to be right, if a candidate of each rank is with these chances, whatever its head
static void likely_tree(int32_t n_nodes, int32_t n_heads, std::vector<int32_t> & parents, std::vector<int32_t> & ranks) {
    static const float chances[] = { 0.42f, 0.11f, 0.055f, 0.035f, 0.025f, 0.02f, 0.015f, 0.01f };
    struct node { float p; int32_t parent, rank, depth; };
    const auto less = [](const node & a, const node & b) { return a.p < b.p; };
    std::priority_queue<node, std::vector<node>, decltype(less)> rest(less);
    for (rest.push({ 1.0f, -1, 0, 0 }); (int32_t) parents.size() < n_nodes && !rest.empty(); ) {
        const node best = rest.top();
        rest.pop();
        const auto self = (int32_t) parents.size();
        parents.push_back(best.parent);
        ranks  .push_back(best.rank);
        for (int32_t rank = 0; best.depth < n_heads && rank < 8; ++rank) {
            rest.push({ best.p*chances[rank], self, rank, best.depth + 1 });
        }
    }
}

static void measure_drafts(bench & b, const options & o, report & out) {
    std::unique_ptr<llama_heads, void (*)(llama_heads *)> heads(llama_heads_load(b.model, o.heads, 0), llama_heads_free);
    out.section("drafts of heads", "milliseconds; share of a step over one token; KB to and from the device; graph splits");
    if (!heads) {
        out.fact("-", std::string(o.heads) + " cannot be used for this model");
        return;
    }
    out.fact("weights", text("%.1f MB on ", (double) llama_heads_n_bytes(heads.get())/1e6) + llama_heads_device(heads.get()));

    using plan_ptr = std::unique_ptr<llama_heads_plan, void (*)(llama_heads_plan *)>;
    std::map<int32_t, plan_ptr> plans;
    std::map<int32_t, int32_t>  n_splits;
    for (const int32_t n : { 4, 8, 16, 28, 64 }) {
        std::vector<int32_t> parents, ranks;
        likely_tree(n, llama_heads_n_heads(heads.get()), parents, ranks);
        const auto n_nodes = (int32_t) parents.size();
        plan_ptr plan(llama_heads_plan_init(heads.get(), n_nodes, parents.data(), ranks.data()), llama_heads_plan_free);
        CHECK(plan);
        n_splits[n_nodes] = llama_heads_n_splits(heads.get(), n_nodes, parents.data(), ranks.data());
        plans.emplace(n_nodes, std::move(plan));
    }
    auto ctx = b.make(256);
    CHECK(ctx);
    b.fill(ctx.get(), 64);
    std::vector<float> hidden(llama_model_n_embd(b.model)), q(64), top1(64);
    std::vector<llama_token> tokens(64);
    std::map<int32_t, std::vector<double>> times; // 0: the step
    rounds(o.repeats, o.seconds, [&](bool counts) {
        for (const auto & [n, plan] : plans) {
            // a draft follows a step, whose weights have filled the caches by then
            const double step = b.step(ctx.get(), 1);
            for (auto & x : hidden) {
                x = std::normal_distribution<float>()(b.rng);
            }
            const auto start = std::chrono::steady_clock::now();
            int32_t n_levels = 0;
            const auto status = llama_heads_draft(
                plan.get(), ctx.get(), hidden.data(), b.random_token(), 0.0f, tokens.data(), q.data(), top1.data(), &n_levels);
            const double draft = bench::since(start);
            CHECK(status == LLAMA_HEADS_OK);
            if (counts) {
                times[0].push_back(step);
                times[n].push_back(draft);
            }
        }
    });
    const double step = spread::of(times[0]).median;
    out.row("the step over one token", spread::of(times[0]), "ms");
    for (const auto & [n, plan] : plans) {
        const spread s = spread::of(times[n]);
        const auto sent    = (double) llama_heads_plan_n_bytes_sent   (plan.get());
        const auto fetched = (double) llama_heads_plan_n_bytes_fetched(plan.get());
        out.row(std::to_string(n) + " nodes", s, "ms", text("%.0f %%", 100*s.median/step) +
            text("; to %.1f KB, from %.1f KB", sent/1e3, fetched/1e3) + "; splits " + std::to_string(n_splits[n]));
    }
}

// CUDA graphs captured by this process so far, -1 when no back end counts them
static int64_t n_captures() {
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        auto * reg = ggml_backend_reg_get(i);
        const auto count = (int64_t (*)(void)) ggml_backend_reg_get_proc_address(reg, "ggml_backend_cuda_n_graph_captures");
        if (count) {
            return count();
        }
    }
    return -1;
}

// returns whether 100 trees of one size, all different, were served by one graph
static bool measure_graphs(bench & b, report & out) {
    out.section("graphs", "over 100 steps of 16 nodes, each with another tree, the root accepted");
    auto ctx = b.make(256);
    CHECK(ctx);
    b.fill(ctx.get(), 64);
    for (int i = 0; i < 4; ++i) {
        b.step(ctx.get(), 16);
    }
    const int64_t builds = llama_tree_n_graph_builds(ctx.get()), captures = n_captures();
    for (int i = 0; i < 100; ++i) {
        b.step(ctx.get(), 16, true);
    }
    const int64_t n_builds = llama_tree_n_graph_builds(ctx.get()) - builds;
    out.fact("graphs built", std::to_string(n_builds) + (n_builds == 0 ? "  ok" : "  NOT OK: one for each size is enough"));
    out.fact("CUDA graphs captured", captures < 0 ? "no back end counts them" : std::to_string(n_captures() - captures));
    return n_builds == 0;
}

static llama_model * load(const options & o, report & out) {
    auto params = llama_model_default_params();
    params.n_gpu_layers = o.layers;
    ggml_backend_dev_t devices[2] = { nullptr, nullptr };
    if (o.device && strcmp(o.device, "none") != 0) {
        devices[0] = ggml_backend_dev_by_name(o.device);
        if (!devices[0]) {
            fprintf(stderr, "bench-tree-device: no device %s; there are:", o.device);
            for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
                fprintf(stderr, " %s", ggml_backend_dev_name(ggml_backend_dev_get(i)));
            }
            fprintf(stderr, "\n");
            exit(2);
        }
    } else if (!o.device) {
        devices[0] = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
        devices[0] = devices[0] ? devices[0] : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU);
    }
    params.devices = devices;
    llama_model * model = llama_model_load_from_file(o.model, params);
    if (!model) {
        fprintf(stderr, "bench-tree-device: %s cannot be loaded\n", o.model);
        exit(1);
    }
    char description[128];
    llama_model_desc(model, description, sizeof(description));
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    auto * device = devices[0] ? devices[0] : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    out.section("trees on a device");
    out.fact("model", std::string(description) + ", " + std::to_string(n_vocab) + " tokens");
    out.fact("device", std::string(ggml_backend_dev_name(device)) + ", " + ggml_backend_dev_description(device));
    out.fact("threads", std::to_string(o.threads));
    return model;
}

int main(int argc, char ** argv) {
    const options o = read_arguments(argc, argv);
    llama_backend_init();
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);

    report out;
    bench b(load(o, out), o.threads);
    const bool graphs_are_kept = measure_graphs(b, out);
    out.print();
    for (const int32_t n_prefix : o.contexts) {
        measure_curve(b, o, out, n_prefix);
        out.print();
    }
    if (o.heads) {
        measure_drafts(b, o, out);
        out.print();
    }
    for (const int32_t n_prefix : o.mask_contexts) {
        measure_variants(b, o, out, n_prefix);
        out.print();
    }
    if (o.json && !out.write_json(o.json)) {
        fprintf(stderr, "bench-tree-device: %s cannot be written\n", o.json);
        return 1;
    }
    llama_model_free(b.model);
    return graphs_are_kept ? 0 : 1;
}
