// attention of few query rows: against a reference in double precision, and bitwise the same row for any number of rows and
// threads and for any masked cells between the visible ones

#include "check.h"

#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

static std::mt19937 rng(1);

static float uniform(float lo, float hi) {
    return std::uniform_real_distribution<float>(lo, hi)(rng);
}

static int randint(int lo, int hi) {
    return std::uniform_int_distribution<int>(lo, hi)(rng);
}

struct shape {
    int       dk, dv, n_head, n_head_kv;
    ggml_type type_k   = GGML_TYPE_F16;
    ggml_type type_v   = GGML_TYPE_F16;
    int       n_stream = 1;
    int       mask_heads = 1;
    bool      masked   = true;
    bool      sinks    = false;
    float     max_bias = 0.0f;
    float     softcap  = 0.0f;

    std::string name() const {
        return std::string(ggml_type_name(type_k)) + "/" + ggml_type_name(type_v) + " " + std::to_string(dk) + "/" + std::to_string(dv) +
            " heads " + std::to_string(n_head) + "/" + std::to_string(n_head_kv) + " streams " + std::to_string(n_stream);
    }
};

// rows of n floats in a type
static std::vector<char> pack(ggml_type type, const std::vector<float> & x, int n) {
    std::vector<char> y(ggml_row_size(type, n)*(x.size()/n));
    if (type == GGML_TYPE_F32) {
        memcpy(y.data(), x.data(), y.size());
    } else {
        ggml_quantize_chunk(type, x.data(), y.data(), 0, x.size()/n, n, nullptr);
    }
    return y;
}

static std::vector<float> unpack(ggml_type type, const std::vector<char> & y, int n, int64_t rows) {
    std::vector<float> x(n*rows);
    if (type == GGML_TYPE_F32) {
        memcpy(x.data(), y.data(), y.size());
    } else {
        ggml_get_type_traits(type)->to_float(y.data(), x.data(), x.size());
    }
    return x;
}

// cells, queries and mask of one attention
struct input {
    shape s;
    int   n_kv;
    int   n_q;

    std::vector<char>        k, v;  // [stream][cell][KV head][element]
    std::vector<float>       q;     // [stream][query][head][element]
    std::vector<ggml_fp16_t> mask;  // [stream][mask head][query][cell]
    std::vector<float>       sinks;

    size_t cell_k() const { return ggml_row_size(s.type_k, s.dk)*s.n_head_kv; }
    size_t cell_v() const { return ggml_row_size(s.type_v, s.dv)*s.n_head_kv; }
    size_t row_q()  const { return (size_t) s.dk*s.n_head; }
    size_t row_o()  const { return (size_t) s.dv*s.n_head; }

    ggml_fp16_t & m(int i3, int h, int iq, int c) {
        return mask[(((size_t) i3*s.mask_heads + h)*n_q + iq)*n_kv + c];
    }
};

static const ggml_fp16_t HIDDEN = ggml_fp32_to_fp16(-INFINITY);

// each query sees about 3/4 of the cells
static input random_input(const shape & s, int n_kv, int n_q) {
    input in = { s, n_kv, n_q, {}, {}, {}, {}, {} };
    std::vector<float> x((size_t) s.n_stream*n_kv*s.n_head_kv*s.dk);
    for (auto & e : x) {
        e = uniform(-1.0f, 1.0f);
    }
    in.k = pack(s.type_k, x, s.dk);
    x.resize((size_t) s.n_stream*n_kv*s.n_head_kv*s.dv);
    for (auto & e : x) {
        e = uniform(-1.0f, 1.0f);
    }
    in.v = pack(s.type_v, x, s.dv);
    in.q.resize((size_t) s.n_stream*n_q*in.row_q());
    for (auto & e : in.q) {
        e = uniform(-2.0f, 2.0f);
    }
    if (s.masked) {
        in.mask.resize((size_t) s.n_stream*s.mask_heads*n_q*n_kv);
        for (int i = 0; i < s.n_stream*s.mask_heads*n_q; ++i) {
            const int from = i%3 == 1 ? randint(0, n_kv/2) : 0; // a window
            for (int c = 0; c < n_kv; ++c) {
                const bool far = i%3 != 2 || c > n_kv/4 ? c < from : randint(0, 1);
                in.mask[(size_t) i*n_kv + c] = far ? HIDDEN : s.max_bias > 0.0f ? ggml_fp32_to_fp16(-fabsf((float) (n_kv - c))) : 0;
            }
        }
    }
    if (s.sinks) {
        in.sinks.resize(s.n_head);
        for (auto & e : in.sinks) {
            e = uniform(-2.0f, 6.0f);
        }
    }
    return in;
}

static std::vector<float> run(input & in, int n_threads) {
    const shape & s = in.s;

    ggml_init_params params = { 1024*1024 + in.row_o()*in.n_q*s.n_stream*sizeof(float), nullptr, /* .no_alloc = */ true };
    ggml_context * ctx = ggml_init(params);

    ggml_tensor * k = ggml_new_tensor_4d(ctx, s.type_k, s.dk, s.n_head_kv, in.n_kv, s.n_stream);
    ggml_tensor * v = ggml_new_tensor_4d(ctx, s.type_v, s.dv, s.n_head_kv, in.n_kv, s.n_stream);
    ggml_tensor * q = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, s.dk, s.n_head, in.n_q, s.n_stream);
    ggml_tensor * m = s.masked ? ggml_new_tensor_4d(ctx, GGML_TYPE_F16, in.n_kv, in.n_q, s.mask_heads, s.n_stream) : nullptr;
    k->data = in.k.data();
    v->data = in.v.data();
    q->data = in.q.data();
    if (m) {
        m->data = in.mask.data();
    }
    k = ggml_permute(ctx, k, 0, 2, 1, 3);
    v = ggml_permute(ctx, v, 0, 2, 1, 3);
    q = ggml_permute(ctx, q, 0, 2, 1, 3);

    ggml_tensor * o = ggml_flash_attn_ext(ctx, q, k, v, m, 1.0f/sqrtf(s.dk), s.max_bias, s.softcap);
    if (s.sinks) {
        ggml_tensor * t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, s.n_head);
        t->data = in.sinks.data();
        ggml_flash_attn_ext_add_sinks(o, t);
    }
    std::vector<float> result(in.row_o()*in.n_q*s.n_stream, 12345.0f);
    o->data = result.data();

    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, o);
    ggml_cplan plan = ggml_graph_plan(graph, n_threads, nullptr);
    std::vector<uint8_t> work(plan.work_size + 64, 0xff); // NaN where something is read before it is written
    plan.work_data = work.data();
    CHECK(ggml_graph_compute(graph, &plan) == GGML_STATUS_SUCCESS);
    for (size_t i = plan.work_size; i < work.size(); ++i) {
        CHECK(work[i] == 0xff);
    }
    ggml_free(ctx);
    return result;
}

static std::vector<float> reference(input & in) {
    const shape & s = in.s;

    const std::vector<float> k = unpack(s.type_k, in.k, s.dk, (int64_t) s.n_stream*in.n_kv*s.n_head_kv);
    const std::vector<float> v = unpack(s.type_v, in.v, s.dv, (int64_t) s.n_stream*in.n_kv*s.n_head_kv);

    const int n_log2 = 1 << (int) floor(log2(s.n_head));

    std::vector<float>  out(in.row_o()*in.n_q*s.n_stream);
    std::vector<double> p(in.n_kv);
    std::vector<double> o(s.dv);
    for (int i = 0; i < s.n_stream*in.n_q*s.n_head; ++i) {
        const int h  = i%s.n_head;
        const int iq = i/s.n_head%in.n_q;
        const int i3 = i/s.n_head/in.n_q;
        const int hk = h/(s.n_head/s.n_head_kv);

        const double slope = s.max_bias <= 0.0f ? 1.0 :
            h < n_log2 ? pow(2.0, -s.max_bias/n_log2*(h + 1)) : pow(2.0, -s.max_bias/2.0/n_log2*(2*(h - n_log2) + 1));

        double max = s.sinks ? in.sinks[h] : -INFINITY;
        for (int c = 0; c < in.n_kv; ++c) {
            double x = 0.0;
            for (int d = 0; d < s.dk; ++d) {
                x += (double) in.q[(size_t) i*s.dk + d]*k[(((size_t) i3*in.n_kv + c)*s.n_head_kv + hk)*s.dk + d];
            }
            x /= sqrt(s.dk);
            x  = s.softcap ? s.softcap*tanh(x/s.softcap) : x;
            x += s.masked ? slope*ggml_fp16_to_fp32(in.m(i3, h%s.mask_heads, iq, c)) : 0.0;
            p[c] = x;
            max = std::max(max, x);
        }
        double sum = s.sinks ? exp(in.sinks[h] - max) : 0.0;
        o.assign(s.dv, 0.0);
        for (int c = 0; c < in.n_kv; ++c) {
            const double e = p[c] == -INFINITY ? 0.0 : exp(p[c] - max);
            sum += e;
            for (int d = 0; d < s.dv && e > 0.0; ++d) {
                o[d] += e*v[(((size_t) i3*in.n_kv + c)*s.n_head_kv + hk)*s.dv + d];
            }
        }
        for (int d = 0; d < s.dv; ++d) {
            out[(size_t) i*s.dv + d] = sum > 0.0 ? o[d]/sum : 0.0;
        }
    }
    return out;
}

static double worst_error(const std::vector<float> & a, const std::vector<float> & b) {
    double worst = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double e = fabs((double) a[i] - b[i]);
        worst = e <= worst ? worst : std::isnan(e) ? INFINITY : e;
    }
    return worst;
}

// one query of a single-stream input on its own
static input one_query(input & in, int iq) {
    input one = in;
    one.n_q = 1;
    one.q.assign(in.q.begin() + iq*in.row_q(), in.q.begin() + (iq + 1)*in.row_q());
    one.mask.clear();
    for (int h = 0; h < in.s.mask_heads && in.s.masked; ++h) {
        one.mask.insert(one.mask.end(), &in.m(0, h, iq, 0), &in.m(0, h, iq, 0) + in.n_kv);
    }
    return one;
}

// the queries from iq on
static input some_queries(input & in, int iq, int n) {
    input some = in;
    some.n_q = n;
    some.q.assign(in.q.begin() + iq*in.row_q(), in.q.begin() + (iq + n)*in.row_q());
    some.mask.clear();
    for (int h = 0; h < in.s.mask_heads && in.s.masked; ++h) {
        some.mask.insert(some.mask.end(), &in.m(0, h, iq, 0), &in.m(0, h, iq, 0) + (size_t) n*in.n_kv);
    }
    return some;
}

// the cells at other places: cell c moves to place[c], what lies between is hidden and holds rubbish
static input move_cells(input & in, const std::vector<int> & place, int n_kv) {
    input moved = in;
    moved.n_kv = n_kv;
    moved.k.assign(in.cell_k()*n_kv, (char) 0xff); // NaN in floats and scales
    moved.v.assign(in.cell_v()*n_kv, (char) 0xff);
    moved.mask.assign((size_t) in.s.mask_heads*in.n_q*n_kv, HIDDEN);
    for (int c = 0; c < in.n_kv; ++c) {
        if (place[c] < 0) {
            continue;
        }
        memcpy(&moved.k[place[c]*in.cell_k()], &in.k[c*in.cell_k()], in.cell_k());
        memcpy(&moved.v[place[c]*in.cell_v()], &in.v[c*in.cell_v()], in.cell_v());
        for (int h = 0; h < in.s.mask_heads; ++h) {
            for (int iq = 0; iq < in.n_q; ++iq) {
                moved.m(0, h, iq, place[c]) = in.m(0, h, iq, c);
            }
        }
    }
    return moved;
}

static bool same_row(const input & in, const std::vector<float> & a, int ia, const std::vector<float> & b, int ib) {
    return memcmp(&a[ia*in.row_o()], &b[ib*in.row_o()], in.row_o()*sizeof(float)) == 0;
}

static void check_accuracy(const shape & s, int n_kv, int n_q, double tolerance) {
    input in = random_input(s, n_kv, n_q);
    const std::vector<float> expected = reference(in);
    for (int n_threads : { 1, 3 }) {
        const double e = worst_error(run(in, n_threads), expected);
        if (!(e < tolerance)) {
            fprintf(stderr, "%s n_kv %d n_q %d: error %g\n", s.name().c_str(), n_kv, n_q, e);
        }
        CHECK(e < tolerance);
    }
}

static void check_same_bits(const shape & s, int n_kv) {
    const int n_q = 63;
    input in = random_input(s, n_kv, n_q);
    const std::vector<float> all = run(in, 1);

    for (int n_threads : { 2, 3, 4, 7 }) {
        CHECK(run(in, n_threads) == all);
    }
    for (int n = 1; n < n_q; n += n < 17 ? 1 : 9) {
        const int iq = randint(0, n_q - n);
        input some = some_queries(in, iq, n);
        const std::vector<float> rows = run(some, randint(1, 4));
        for (int i = 0; i < n; ++i) {
            CHECK(same_row(in, rows, i, all, iq + i));
        }
    }
    if (!s.masked) {
        return;
    }

    // padding behind, and gaps between
    std::vector<int> place(n_kv);
    for (int gap : { 0, 1, 40 }) {
        int next = 0;
        for (int c = 0; c < n_kv; ++c) {
            next += randint(0, 3) == 0 ? randint(0, gap) : 0;
            place[c] = next++;
        }
        input moved = move_cells(in, place, next + randint(1, 300));
        CHECK(run(moved, randint(1, 4)) == all);
    }

    // alone, with the visible cells only
    if (s.mask_heads == 1) {
        for (int iq = 0; iq < n_q; iq += 7) {
            input one = one_query(in, iq);
            int next = 0;
            for (int c = 0; c < n_kv; ++c) {
                place[c] = one.mask[c] == HIDDEN ? -1 : next++;
            }
            input moved = move_cells(one, place, std::max(next, 1));
            CHECK(same_row(in, run(moved, randint(1, 4)), 0, all, iq));
        }
    }
}

// queries of several texts, each of which has a part of the cells to itself: every row is what it is alone
static void check_texts_apart(const shape & s, int n_part, const std::vector<int> & text_of_query) {
    const int n_texts = *std::max_element(text_of_query.begin(), text_of_query.end()) + 1;
    input in = random_input(s, n_texts*n_part, (int) text_of_query.size());
    for (int h = 0; h < s.mask_heads; ++h) {
        for (int iq = 0; iq < in.n_q; ++iq) {
            for (int c = 0; c < in.n_kv; ++c) {
                // one that sees nothing may stand anywhere
                if (c/n_part != text_of_query[iq] || c%n_part > n_part/2 + iq || text_of_query[iq] == 1) {
                    in.m(0, h, iq, c) = HIDDEN;
                }
            }
        }
    }
    const std::vector<float> all = run(in, 1);
    CHECK(worst_error(all, reference(in)) < 1e-5);
    for (int n_threads : { 2, 3 }) {
        CHECK(run(in, n_threads) == all);
    }
    for (int iq = 0; iq < in.n_q; ++iq) {
        input one = one_query(in, iq);
        CHECK(same_row(in, run(one, randint(1, 3)), 0, all, iq));
    }
}

// a row that sees nothing is zero, and infinite or NaN cells stay with the rows that see them
static void check_odd_values() {
    shape s = { 64, 64, 6, 2 };
    s.type_k = s.type_v = GGML_TYPE_F32;
    input in = random_input(s, 200, 5);
    for (int c = 0; c < in.n_kv; ++c) {
        in.m(0, 0, 1, c) = HIDDEN;
    }
    for (int iq = 0; iq < 5; ++iq) {
        in.m(0, 0, iq, 100) = HIDDEN;
        in.m(0, 0, iq, 101) = HIDDEN;
    }
    const std::vector<float> clean = run(in, 2);
    for (size_t i = 0; i < in.row_o(); ++i) {
        CHECK(clean[in.row_o() + i] == 0.0f);
    }

    float * k = (float *) in.k.data();
    float * v = (float *) in.v.data();
    for (size_t d = 0; d < in.cell_k()/sizeof(float); ++d) {
        v[100*in.cell_v()/sizeof(float) + d] = INFINITY;
        v[101*in.cell_v()/sizeof(float) + d] = NAN;
        k[101*in.cell_k()/sizeof(float) + d] = NAN;
    }
    in.m(0, 0, 3, 100) = 0;
    in.m(0, 0, 4, 101) = 0;
    const std::vector<float> odd = run(in, 2);
    for (int iq = 0; iq < 3; ++iq) {
        CHECK(same_row(in, odd, iq, clean, iq));
    }
    for (size_t i = 0; i < in.row_o(); ++i) {
        CHECK(!std::isfinite(odd[3*in.row_o() + i]));
        CHECK(std::isnan(odd[4*in.row_o() + i]));
    }
}

int main() {
    ggml_cpu_init();

    std::vector<shape> shapes = {
        { 64, 64, 9, 3 }, { 64, 64, 14, 2 }, { 128, 128, 12, 2 }, { 64, 64, 4, 4 }, { 32, 32, 8, 1 }, { 256, 256, 8, 4 },
        { 80, 80, 4, 2 }, { 72, 40, 4, 2 }, { 13, 27, 6, 3 }, { 576, 512, 16, 1 }, { 192, 128, 5, 5 },
    };
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL }) {
        shapes.push_back({ 64, 64, 9, 3, type, type });
        shapes.push_back({ 128, 96, 12, 2, type, type });
    }
    shapes.push_back({ 64, 64, 9, 3, GGML_TYPE_Q8_0, GGML_TYPE_F16 });
    shapes.push_back({ 64, 128, 6, 2, GGML_TYPE_F16, GGML_TYPE_Q4_0 });
    shapes.push_back({ 256, 256, 4, 2, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K });
    for (int i = 0; i < 5; ++i) {
        shape s = { 64, 64, 9, 3 };
        s.masked     = i != 0;
        s.sinks      = i == 1 || i == 4;
        s.max_bias   = i == 2 || i == 4 ? 8.0f : 0.0f;
        s.softcap    = i == 3 || i == 4 ? 5.0f : 0.0f;
        s.mask_heads = i == 4 ? 9 : 1;
        shapes.push_back(s);
    }

    for (shape s : shapes) {
        check_same_bits(s, randint(33, 200));
        check_same_bits(s, s.dk > 256 ? 300 : 1100);
        for (int n_stream : { 1, 3 }) {
            s.n_stream = n_stream;
            for (int n_kv : { 1, 7, 32, 65, 500 }) {
                check_accuracy(s, n_kv, randint(1, 2), 1e-5);
                check_accuracy(s, n_kv, randint(3, 20), 1e-5);
            }
        }
    }
    check_accuracy(shapes[0], 20000, 3, 1e-5);
    check_same_bits(shapes[0], 9000);
    for (int n_part : { 40, 64, 600 }) {
        check_texts_apart(shapes[0], n_part, { 0, 0, 0, 2, 2, 3, 4, 4, 4, 4 });
        check_texts_apart(shapes[1], n_part, { 3, 2, 1, 1, 0, 3, 3, 0, 2 });
        check_texts_apart(shapes.back(), n_part, { 0, 0, 1, 2, 2 });
    }
    check_odd_values();

    printf("test-flash-attn-rows: ok\n");
    return 0;
}
