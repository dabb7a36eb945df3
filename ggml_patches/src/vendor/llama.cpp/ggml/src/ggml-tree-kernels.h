#pragma once

// The kernels of TREE_MASK and TOPK_STATS (ggml_tree_mask and ggml_topk_stats in ggml.h), as text that CUDA, Metal and plain C++
// compile alike: no standard library, no doubles, no intrinsics of one vendor.
//
// TOPK_STATS is a list of phases, TREE_STATS_PHASES. Every thread of a block runs a phase, then all wait at a barrier; C++ runs the
// threads one after the other through a phase, then through the next.
//
// Logits are compared as integers and infinities never enter arithmetic: a compiler for devices may assume that there are none.
// Nothing depends on the order in which threads run.

#if defined(__METAL_VERSION__)

#define TREE_FN     static inline
#define TREE_DEVICE device
#define TREE_SHARED threadgroup
#define TREE_THREAD thread

#define TREE_BITS_AS_FLOAT(bits) as_type<float>((uint32_t) (bits))
#define TREE_FLOAT_AS_BITS(x)    as_type<uint32_t>((float) (x))
#define TREE_EXP(x)              exp(x)
#define TREE_LOG(x)              log(x)

typedef atomic_int tree_counter;

#define TREE_COUNTER_SET(counter, value) atomic_store_explicit(&(counter), value, memory_order_relaxed)
#define TREE_COUNTER_GET(counter)        atomic_load_explicit(&(counter), memory_order_relaxed)
#define TREE_COUNTER_ADD(counter, value) atomic_fetch_add_explicit(&(counter), value, memory_order_relaxed)

#elif defined(TREE_KERNELS_CUDA) // set by tree-ops.cu, which HIP and MUSA compile too

#define TREE_FN     static __device__ __forceinline__
#define TREE_DEVICE
#define TREE_SHARED
#define TREE_THREAD

#define TREE_BITS_AS_FLOAT(bits) __uint_as_float(bits)
#define TREE_FLOAT_AS_BITS(x)    __float_as_uint(x)
#define TREE_EXP(x)              expf(x)
#define TREE_LOG(x)              logf(x)

typedef int32_t tree_counter;

#define TREE_COUNTER_SET(counter, value) ((counter) = (value))
#define TREE_COUNTER_GET(counter)        (*(volatile tree_counter *) &(counter))
#define TREE_COUNTER_ADD(counter, value) atomicAdd(&(counter), value)

#else // C++, for tests

#include <cmath>
#include <cstdint>
#include <cstring>

#define TREE_FN     static inline
#define TREE_DEVICE
#define TREE_SHARED
#define TREE_THREAD

struct alignas(8)  uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(16) int4  { int32_t  x, y, z, w; };

TREE_FN float    tree_bits_as_float(uint32_t bits) { float x;       memcpy(&x, &bits, sizeof(x));    return x;    }
TREE_FN uint32_t tree_float_as_bits(float x)       { uint32_t bits; memcpy(&bits, &x, sizeof(bits)); return bits; }

#define TREE_BITS_AS_FLOAT(bits) tree_bits_as_float(bits)
#define TREE_FLOAT_AS_BITS(x)    tree_float_as_bits(x)
#define TREE_EXP(x)              expf(x)
#define TREE_LOG(x)              logf(x)

typedef int32_t tree_counter;

#define TREE_COUNTER_SET(counter, value) ((counter) = (value))
#define TREE_COUNTER_GET(counter)        (counter)
#define TREE_COUNTER_ADD(counter, value) tree_counter_add(&(counter), value)

TREE_FN int32_t tree_counter_add(tree_counter * counter, int32_t value) {
    *counter += value;
    return *counter - value;
}

#endif

//
// TREE_MASK
//
// A thread computes 4 neighbouring cells for TREE_MASK_TOKENS tokens: 16 bytes of cells, and as many of positions, are read once
// for 4 stores of 8 bytes (F16) or 16 (F32).
//

#define TREE_MASK_CELLS  4
#define TREE_MASK_TOKENS 4

#define TREE_WINDOW_NONE    0 // enum ggml_tree_window
#define TREE_WINDOW_SLIDING 1
#define TREE_WINDOW_CHUNKED 2

struct tree_mask_op {
    TREE_DEVICE const int32_t * cells;
    TREE_DEVICE const int32_t * tokens;
    TREE_DEVICE const int32_t * pos; // read if there is a window
    TREE_DEVICE       char    * dst;

    int32_t n_kv;
    int32_t n_tokens;
    int32_t n_words;
    int32_t window;
    int32_t n_window;
    bool    is_f16;
    bool    aligned; // n_kv is a multiple of 4, and all pointers but tokens are multiples of 16
};

TREE_FN void tree_mask_load(TREE_DEVICE const int32_t * from, int32_t n, bool aligned, TREE_THREAD int32_t * to) {
    if (aligned) {
        const int4 quad = *(TREE_DEVICE const int4 *) from;
        to[0] = quad.x;
        to[1] = quad.y;
        to[2] = quad.z;
        to[3] = quad.w;
        return;
    }
    for (int32_t j = 0; j < TREE_MASK_CELLS; ++j) {
        to[j] = j < n ? from[j] : -1;
    }
}

// the first position that a token sees
TREE_FN int32_t tree_mask_first_pos(int32_t pos, int32_t window, int32_t n_window) {
    if (window == TREE_WINDOW_SLIDING) {
        return pos - n_window + 1;
    }
    return window == TREE_WINDOW_CHUNKED ? pos/n_window*n_window : (int32_t) -0x7fffffff;
}

TREE_FN bool tree_mask_sees(TREE_DEVICE const int32_t * token, int32_t n_words, int32_t first_pos, int32_t cell, int32_t pos) {
    if (cell < 0 || (cell >> 16) != token[0] || pos < first_pos) {
        return false;
    }
    const int32_t node = (cell & 0xffff) - 1;

    return node < 0 || (node < 32*n_words && ((token[2 + node/32] >> (node%32)) & 1));
}

TREE_FN void tree_mask_store(tree_mask_op op, int32_t i, int32_t j0, TREE_THREAD const bool * sees) {
    const int32_t n = op.n_kv - j0;

    if (op.is_f16) {
        TREE_DEVICE uint16_t * row = (TREE_DEVICE uint16_t *) op.dst + (int64_t) i*op.n_kv + j0;
        const uint32_t unseen = 0xfc00; // -INF
        if (op.aligned) {
            uint2 quad;
            quad.x = (sees[0] ? 0 : unseen) | (sees[1] ? 0 : unseen << 16);
            quad.y = (sees[2] ? 0 : unseen) | (sees[3] ? 0 : unseen << 16);
            *(TREE_DEVICE uint2 *) row = quad;
            return;
        }
        for (int32_t j = 0; j < TREE_MASK_CELLS && j < n; ++j) {
            row[j] = (uint16_t) (sees[j] ? 0 : unseen);
        }
    } else {
        TREE_DEVICE uint32_t * row = (TREE_DEVICE uint32_t *) op.dst + (int64_t) i*op.n_kv + j0;
        const uint32_t unseen = 0xff800000; // -INF
        if (op.aligned) {
            uint4 quad;
            quad.x = sees[0] ? 0 : unseen;
            quad.y = sees[1] ? 0 : unseen;
            quad.z = sees[2] ? 0 : unseen;
            quad.w = sees[3] ? 0 : unseen;
            *(TREE_DEVICE uint4 *) row = quad;
            return;
        }
        for (int32_t j = 0; j < TREE_MASK_CELLS && j < n; ++j) {
            row[j] = sees[j] ? 0 : unseen;
        }
    }
}

// cells from TREE_MASK_CELLS*ix on, tokens from TREE_MASK_TOKENS*iy on
TREE_FN void tree_mask(tree_mask_op op, int32_t ix, int32_t iy) {
    const int32_t j0 = TREE_MASK_CELLS*ix;
    if (j0 >= op.n_kv) {
        return;
    }

    int32_t cells[TREE_MASK_CELLS];
    int32_t pos  [TREE_MASK_CELLS] = { 0, 0, 0, 0 };

    tree_mask_load(op.cells + j0, op.n_kv - j0, op.aligned, cells);
    if (op.window != TREE_WINDOW_NONE) {
        tree_mask_load(op.pos + j0, op.n_kv - j0, op.aligned, pos);
    }

    for (int32_t i = TREE_MASK_TOKENS*iy; i < TREE_MASK_TOKENS*(iy + 1) && i < op.n_tokens; ++i) {
        TREE_DEVICE const int32_t * token = op.tokens + (int64_t) i*(op.n_words + 2);
        const int32_t first_pos = tree_mask_first_pos(token[1], op.window, op.n_window);

        bool sees[TREE_MASK_CELLS];
        for (int32_t j = 0; j < TREE_MASK_CELLS; ++j) {
            sees[j] = tree_mask_sees(token, op.n_words, first_pos, cells[j], pos[j]);
        }
        tree_mask_store(op, i, j0, sees);
    }
}

//
// TOPK_STATS
//
// One block computes one row, and reads it twice (the second time most often from a cache):
//   1. each thread finds the largest of its logits. 256 groups of threads give 256 maxima, of distinct logits; the k-th largest of
//      them is a bound that at least k logits reach, and hardly more than k where large logits lie anywhere in the row
//   2. with the maximum known: sums of e^x and x*e^x, and a list of the logits that reach the bound
// Then the list is sorted by counting for each entry those before it.
// If too many reach the bound (ties, or large logits that all meet in a few threads), k rounds each take the best of the threads'
// candidates, and the thread that had it looks through its own logits for its next one: at most k/threads of a row are read.
//

#define TREE_STATS_MAX_THREADS 1024 // a block has this many, or 256, 512 or 768
#define TREE_STATS_GROUPS       256
#define TREE_STATS_LIST        1024
#define TREE_STATS_LANES         32 // threads that merge what all threads found
#define TREE_STATS_BATCH          4 // loads of 16 bytes that a thread has under way

// a logit as an integer of the same order: -0 equals 0, NaN equals -INF
#define TREE_KEY_NONE     ((int32_t) -0x7fffffff) // no logit
#define TREE_KEY_NEGINF   ((int32_t) -0x7f800000)
#define TREE_KEY_INF      ((int32_t)  0x7f800000)

struct tree_stats_row {
    TREE_DEVICE const uint32_t * x;   // the bits of n logits
    TREE_DEVICE       uint32_t * dst; // 2*k + 2

    int32_t n;
    int32_t k;
    int32_t head;      // logits before the first multiple of 16 bytes
    int32_t n_quads;   // groups of 4 logits from there on
    int32_t n_threads;
};

struct tree_stats_shared {
    // of threads, later of the list of logits that reach the bound, or of the candidates of threads
    int32_t key[TREE_STATS_LIST];
    int32_t id [TREE_STATS_LIST];

    int32_t group[TREE_STATS_GROUPS]; // maxima, later threads

    float sum_e [TREE_STATS_MAX_THREADS];
    float sum_xe[TREE_STATS_MAX_THREADS];

    tree_counter n_found;
    tree_counter n_max; // logits equal to the maximum

    int32_t max;
    int32_t bound;
    int32_t n_picked;
    int32_t winner;
};

// address: of the row modulo 16
TREE_FN tree_stats_row tree_stats_row_init(
        TREE_DEVICE const uint32_t * x, TREE_DEVICE uint32_t * dst, int32_t address, int32_t n, int32_t k, int32_t n_threads) {
    const int32_t head = (4 - (address >> 2)) & 3;

    tree_stats_row row;
    row.x         = x;
    row.dst       = dst;
    row.n         = n;
    row.k         = k;
    row.head      = head < n ? head : n;
    row.n_quads   = (n - row.head)/4;
    row.n_threads = n_threads;
    return row;
}

TREE_FN int32_t tree_key(uint32_t bits) {
    const int32_t magnitude = (int32_t) (bits & 0x7fffffff);
    if (magnitude > TREE_KEY_INF) {
        return TREE_KEY_NEGINF;
    }
    return bits >> 31 ? -magnitude : magnitude;
}

TREE_FN float tree_key_value(int32_t key) {
    return TREE_BITS_AS_FLOAT(key < 0 ? 0x80000000u | (uint32_t) -key : (uint32_t) key);
}

TREE_FN bool tree_before(int32_t key_a, int32_t id_a, int32_t key_b, int32_t id_b) {
    return key_a > key_b || (key_a == key_b && id_a < id_b);
}

// the logits before and after the quads, at most 6, belong to one thread each; n: none
TREE_FN int32_t tree_stats_edge(tree_stats_row row, int32_t tid) {
    if (tid < row.head) {
        return tid;
    }
    const int32_t id = 4*row.n_quads + tid;
    return id < row.n ? id : row.n;
}

TREE_FN int32_t tree_stats_edge_key(tree_stats_row row, int32_t tid) {
    const int32_t id = tree_stats_edge(row, tid);
    return id < row.n ? tree_key(row.x[id]) : TREE_KEY_NONE;
}

// the quads from `quad` on that a thread takes next. All loads come first: one waits for memory while the others are under way
TREE_FN void tree_stats_load(tree_stats_row row, int32_t quad, TREE_THREAD int32_t * keys) {
    uint4 bits[TREE_STATS_BATCH];
    for (int32_t b = 0; b < TREE_STATS_BATCH; ++b) {
        const int32_t i    = quad + b*row.n_threads;
        const int32_t last = row.n_quads - 1;
        bits[b] = *(TREE_DEVICE const uint4 *) (row.x + row.head + 4*(i < last ? i : last));
    }
    for (int32_t b = 0; b < TREE_STATS_BATCH; ++b) {
        const bool there = quad + b*row.n_threads < row.n_quads;
        keys[4*b + 0] = there ? tree_key(bits[b].x) : TREE_KEY_NONE;
        keys[4*b + 1] = there ? tree_key(bits[b].y) : TREE_KEY_NONE;
        keys[4*b + 2] = there ? tree_key(bits[b].z) : TREE_KEY_NONE;
        keys[4*b + 3] = there ? tree_key(bits[b].w) : TREE_KEY_NONE;
    }
}

TREE_FN int32_t tree_stats_largest(TREE_THREAD const int32_t * keys) {
    int32_t largest = keys[0];
    for (int32_t j = 1; j < 4*TREE_STATS_BATCH; ++j) {
        largest = keys[j] > largest ? keys[j] : largest;
    }
    return largest;
}

// the id of a key of tree_stats_load
TREE_FN int32_t tree_stats_id(tree_stats_row row, int32_t quad, int32_t j) {
    return row.head + 4*(quad + j/4*row.n_threads) + j%4;
}

TREE_FN void tree_stats_maximum(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    int32_t best = tree_stats_edge_key(row, tid);

    for (int32_t quad = tid; quad < row.n_quads; quad += TREE_STATS_BATCH*row.n_threads) {
        int32_t keys[4*TREE_STATS_BATCH];
        tree_stats_load(row, quad, keys);
        const int32_t largest = tree_stats_largest(keys);
        best = largest > best ? largest : best;
    }
    sh->key[tid] = best;
}

TREE_FN void tree_stats_groups(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    if (tid >= TREE_STATS_GROUPS) {
        return;
    }
    int32_t best = sh->key[tid];
    for (int32_t i = tid + TREE_STATS_GROUPS; i < row.n_threads; i += TREE_STATS_GROUPS) {
        best = sh->key[i] > best ? sh->key[i] : best;
    }
    sh->group[tid] = best;
}

TREE_FN void tree_stats_bound(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    if (tid == 0) {
        TREE_COUNTER_SET(sh->n_found, 0);
        TREE_COUNTER_SET(sh->n_max,   0);
        sh->n_picked = 0;
    }
    if (tid >= TREE_STATS_GROUPS) {
        return;
    }
    const int32_t key  = sh->group[tid];
    int32_t       rank = 0;
    for (int32_t i = 0; i < TREE_STATS_GROUPS; ++i) {
        rank += tree_before(sh->group[i], i, key, tid) ? 1 : 0;
    }
    if (rank == 0) {
        sh->max = key;
    }
    if (rank == row.k - 1) {
        sh->bound = key > TREE_KEY_NEGINF ? key : TREE_KEY_NEGINF;
    }
}

TREE_FN void tree_stats_list(TREE_SHARED tree_stats_shared * sh, int32_t key, int32_t id) {
    if (TREE_COUNTER_GET(sh->n_found) > TREE_STATS_LIST) {
        return; // the list is of no use any more
    }
    const int32_t i = TREE_COUNTER_ADD(sh->n_found, 1);
    if (i < TREE_STATS_LIST) {
        sh->key[i] = key;
        sh->id [i] = id;
    }
}

// what a thread adds up. The maximum is counted apart, so that the entropy of a row with one large logit keeps its digits
struct tree_stats_sums {
    float   e;
    float   xe;
    int32_t n_max;
};

struct tree_stats_scale {
    float   max;
    int32_t max_key;
    int32_t cutoff; // the key of max - 87, where e^x is next to nothing
};

TREE_FN bool tree_key_is_finite(int32_t key) {
    return key > TREE_KEY_NEGINF && key < TREE_KEY_INF;
}

TREE_FN tree_stats_scale tree_stats_scale_init(int32_t max_key) {
    const bool finite = tree_key_is_finite(max_key);

    tree_stats_scale scale;
    scale.max     = finite ? tree_key_value(max_key) : 0.0f;
    scale.max_key = max_key;
    scale.cutoff  = finite ? tree_key(TREE_FLOAT_AS_BITS(scale.max - 87.0f)) : TREE_KEY_INF;
    return scale;
}

TREE_FN void tree_stats_add(TREE_THREAD tree_stats_sums * sums, tree_stats_scale scale, int32_t key) {
    const bool  counts = key > scale.cutoff && key != scale.max_key;
    const float x      = (counts ? tree_key_value(key) : scale.max) - scale.max;
    const float e      = counts ? TREE_EXP(x) : 0.0f;

    sums->e     += e;
    sums->xe    += x*e;
    sums->n_max += key == scale.max_key ? 1 : 0;
}

TREE_FN void tree_stats_gather(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    const tree_stats_scale scale = tree_stats_scale_init(sh->max);
    const int32_t          bound = sh->bound;

    tree_stats_sums total;
    total.e     = 0.0f;
    total.xe    = 0.0f;
    total.n_max = 0;

    const int32_t edge = tree_stats_edge_key(row, tid);
    tree_stats_add(&total, scale, edge);
    if (edge >= bound) {
        tree_stats_list(sh, edge, tree_stats_edge(row, tid));
    }

    for (int32_t quad = tid; quad < row.n_quads; quad += TREE_STATS_BATCH*row.n_threads) {
        int32_t keys[4*TREE_STATS_BATCH];
        tree_stats_load(row, quad, keys);

        // short sums of short sums lose little
        tree_stats_sums part;
        part.e     = 0.0f;
        part.xe    = 0.0f;
        part.n_max = 0;
        for (int32_t j = 0; j < 4*TREE_STATS_BATCH; ++j) {
            tree_stats_add(&part, scale, keys[j]);
        }
        total.e     += part.e;
        total.xe    += part.xe;
        total.n_max += part.n_max;

        if (tree_stats_largest(keys) >= bound) {
            for (int32_t j = 0; j < 4*TREE_STATS_BATCH; ++j) {
                if (keys[j] >= bound) {
                    tree_stats_list(sh, keys[j], tree_stats_id(row, quad, j));
                }
            }
        }
    }

    sh->sum_e [tid] = total.e;
    sh->sum_xe[tid] = total.xe;
    if (total.n_max > 0) {
        TREE_COUNTER_ADD(sh->n_max, total.n_max);
    }
}

TREE_FN void tree_stats_put(tree_stats_row row, int32_t rank, int32_t key, int32_t id) {
    row.dst[rank]         = (uint32_t) id;
    row.dst[row.k + rank] = key == 0 ? row.x[id] : TREE_FLOAT_AS_BITS(tree_key_value(key)); // -0 stays -0
}

TREE_FN void tree_stats_sort(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    const int32_t n = TREE_COUNTER_GET(sh->n_found);

    for (int32_t i = tid; n <= TREE_STATS_LIST && i < n; i += row.n_threads) {
        int32_t rank = 0;
        for (int32_t j = 0; j < n; ++j) {
            rank += tree_before(sh->key[j], sh->id[j], sh->key[i], sh->id[i]) ? 1 : 0;
        }
        if (rank < row.k) {
            tree_stats_put(row, rank, sh->key[i], sh->id[i]);
        }
    }

    if (tid < TREE_STATS_LANES) {
        for (int32_t i = tid + TREE_STATS_LANES; i < row.n_threads; i += TREE_STATS_LANES) {
            sh->sum_e [tid] += sh->sum_e [i];
            sh->sum_xe[tid] += sh->sum_xe[i];
        }
    }
}

// ln(1 + x) of x >= 0, where 1 + x would lose digits of a small x: 2*atanh(x/(2 + x))
TREE_FN float tree_log1p(float x) {
    if (x > 0.5f) {
        return TREE_LOG(1.0f + x);
    }
    const float s = x/(2.0f + x);
    const float q = s*s;
    return 2.0f*s*(1.0f + q*(1.0f/3 + q*(1.0f/5 + q*(1.0f/7 + q*(1.0f/9)))));
}

TREE_FN void tree_stats_finish(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    if (tid != 0) {
        return;
    }
    float sum_e  = 0.0f;
    float sum_xe = 0.0f;
    for (int32_t i = 0; i < TREE_STATS_LANES; ++i) {
        sum_e  += sh->sum_e [i];
        sum_xe += sh->sum_xe[i];
    }

    uint32_t lse     = TREE_FLOAT_AS_BITS(tree_key_value(sh->max));
    float    entropy = 0.0f;
    if (tree_key_is_finite(sh->max)) {
        const float rest = sum_e + (float) (TREE_COUNTER_GET(sh->n_max) - 1);
        const float ln   = tree_log1p(rest);
        lse     = TREE_FLOAT_AS_BITS(tree_key_value(sh->max) + ln);
        entropy = ln - sum_xe/(1.0f + rest);
    }
    row.dst[2*row.k]     = lse;
    row.dst[2*row.k + 1] = TREE_FLOAT_AS_BITS(entropy);
}

// the best of a thread's logits that come after a pick
TREE_FN void tree_stats_candidate(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid, int32_t key, int32_t id) {
    int32_t best_id  = tree_stats_edge(row, tid);
    int32_t best_key = tree_stats_edge_key(row, tid);
    if (!tree_before(key, id, best_key, best_id)) {
        best_key = TREE_KEY_NONE;
        best_id  = row.n;
    }

    for (int32_t quad = tid; quad < row.n_quads; quad += TREE_STATS_BATCH*row.n_threads) {
        int32_t keys[4*TREE_STATS_BATCH];
        tree_stats_load(row, quad, keys);
        for (int32_t j = 0; j < 4*TREE_STATS_BATCH; ++j) {
            const int32_t id_j = tree_stats_id(row, quad, j);
            if (tree_before(key, id, keys[j], id_j) && tree_before(keys[j], id_j, best_key, best_id)) {
                best_key = keys[j];
                best_id  = id_j;
            }
        }
    }
    sh->key[tid] = best_key;
    sh->id [tid] = best_id;
}

TREE_FN void tree_stats_candidates(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    tree_stats_candidate(row, sh, tid, (int32_t) 0x7fffffff, -1);
}

TREE_FN void tree_stats_lead(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    if (tid >= TREE_STATS_LANES) {
        return;
    }
    int32_t best = tid;
    for (int32_t i = tid + TREE_STATS_LANES; i < row.n_threads; i += TREE_STATS_LANES) {
        best = tree_before(sh->key[i], sh->id[i], sh->key[best], sh->id[best]) ? i : best;
    }
    sh->group[tid] = best;
}

TREE_FN void tree_stats_pick(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    if (tid != 0) {
        return;
    }
    int32_t best = sh->group[0];
    for (int32_t i = 1; i < TREE_STATS_LANES; ++i) {
        const int32_t other = sh->group[i];
        best = tree_before(sh->key[other], sh->id[other], sh->key[best], sh->id[best]) ? other : best;
    }
    sh->winner = best;
    tree_stats_put(row, sh->n_picked, sh->key[best], sh->id[best]);
    sh->n_picked++;
}

TREE_FN void tree_stats_next(tree_stats_row row, TREE_SHARED tree_stats_shared * sh, int32_t tid) {
    if (tid == sh->winner) {
        tree_stats_candidate(row, sh, tid, sh->key[tid], sh->id[tid]);
    }
}

// PHASE(f): all threads run f(row, sh, thread), then wait. What the conditions read is written in a phase, so all threads agree
#define TREE_STATS_PHASES(PHASE, row, sh)                     \
    PHASE(tree_stats_maximum)                                 \
    PHASE(tree_stats_groups)                                  \
    PHASE(tree_stats_bound)                                   \
    PHASE(tree_stats_gather)                                  \
    PHASE(tree_stats_sort)                                    \
    PHASE(tree_stats_finish)                                  \
    if (TREE_COUNTER_GET((sh)->n_found) > TREE_STATS_LIST) {  \
        PHASE(tree_stats_candidates)                          \
        while ((sh)->n_picked < (row).k) {                    \
            PHASE(tree_stats_lead)                            \
            PHASE(tree_stats_pick)                            \
            PHASE(tree_stats_next)                            \
        }                                                     \
    }
