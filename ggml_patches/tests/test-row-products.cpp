// Matrix products of the row kernels: right, against a reference in double precision, and the same bits for a column
// whatever is computed beside it, and whether or not the weights were packed.

#include "check.h"
#include "row-product.h"

#include "llama-row-kernels.h"

#include <cmath>
#include <cstring>

// Columns that quantise without error: whole numbers up to 127 times a power of two, with a 127 in every 32. What the
// kernel returns then differs from the exact result by the rounding of its float sums alone.
static std::vector<float> exact_columns(int64_t k, int64_t n, std::mt19937 & rng) {
    std::vector<float> data(k*n);
    for (size_t i = 0; i < data.size(); ++i) {
        const bool  largest = i % 32 == size_t(rng() % 32);
        const float scale   = 0.0625f;
        data[i] = scale*(largest ? 127.0f : float(int(rng() % 255) - 127));
    }
    for (size_t i = 0; i < data.size(); i += 32) {
        data[i + rng() % 32] = rng() % 2 ? 0.0625f*127 : -0.0625f*127;
    }
    return data;
}

static std::vector<float> any_columns(int64_t k, int64_t n, std::mt19937 & rng) {
    std::vector<float> data(k*n);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (int64_t i = 0; i < k*n; ++i) {
        data[i] = (i/32) % 11 == 5 ? 0.0f : normal(rng);  // with blocks of zeros
    }
    return data;
}

static std::vector<float> dequantize(ggml_type type, const std::vector<uint8_t> & weights, int64_t n_elements) {
    std::vector<float> data(n_elements);
    ggml_get_type_traits(type)->to_float(weights.data(), data.data(), n_elements);
    return data;
}

static void check_values(const weight_type & what, int64_t m, int64_t k, int64_t n, float scale, std::mt19937 & rng) {
    const auto weights = random_weights(what, m*k, scale, rng);
    const auto columns = exact_columns(k, n, rng);
    const auto floats  = dequantize(what.type, weights, m*k);

    product op(what.type, m, k, n);
    if (rng() % 2) {
        op.make_room();
    }
    op.set_weights(weights);
    op.set_values(columns.data());
    op.compute(2);
    const auto result = op.get();

    for (int64_t c = 0; c < n; ++c) {
        for (int64_t r = 0; r < m; ++r) {
            double sum  = 0.0;
            double size = 0.0;
            for (int64_t i = 0; i < k; ++i) {
                const double term = double(floats[r*k + i])*double(columns[c*k + i]);
                sum  += term;
                size += std::abs(term);
            }
            // offsets and mins are sums of their own, so terms up to a few times larger than the result cancel
            CHECK(std::abs(result[c*m + r] - sum) <= 4e-6*size + 1e-5*std::abs(sum) + 1e-30);
        }
    }
}

// products whose weights were packed
static int n_packed = 0;

// the columns [first, first + n) of `columns` alone; packed: by panels that are kept, if such weights are
static std::vector<float> part(
        const weight_type & what, const std::vector<uint8_t> & weights, const std::vector<float> & columns,
        int64_t m, int64_t k, int64_t first, int64_t n, int n_threads, bool packed) {
    product op(what.type, m, k, n);
    packed = packed && op.make_room();
    op.set_weights(weights);
    op.set_values(columns.data() + first*k);
    op.compute(n_threads);
    const auto result = op.get();
    if (packed) {
        op.compute(n_threads);
        const auto again = op.get();
        CHECK(std::memcmp(result.data(), again.data(), result.size()*sizeof(float)) == 0);
        CHECK(op.times_packed() == 1);
        ++n_packed;
    }
    return result;
}

static void check_independence(const weight_type & what, int64_t m, int64_t k, std::mt19937 & rng) {
    constexpr int64_t N = 80;
    const auto weights = random_weights(what, m*k, 0.05f, rng);
    const auto columns = any_columns(k, N, rng);

    std::vector<float> alone;
    for (int64_t c = 0; c < N; ++c) {
        const auto one = part(what, weights, columns, m, k, c, 1, 1, false);
        alone.insert(alone.end(), one.begin(), one.end());
    }
    for (int64_t n : { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 63, 64, 80 }) {
        if (what.type == GGML_TYPE_BF16 && n >= 64) {
            continue;  // may be left to BF16 instructions
        }
        for (int n_threads : { 1, 2, 3, 5 }) {
            for (bool packed : { false, true }) {
                const int64_t first  = N > n ? int64_t(rng() % (N - n + 1)) : 0;
                const auto    result = part(what, weights, columns, m, k, first, n, n_threads, packed);
                CHECK(std::memcmp(result.data(), alone.data() + first*m, result.size()*sizeof(float)) == 0);
            }
        }
    }
}

// A build for other instructions leaves everything to llama.cpp, and must not disturb it.
static int check_stock(std::mt19937 & rng) {
    for (const auto & what : weight_types()) {
        for (int64_t n : { 1, 4, 33 }) {
            check_values(what, 64, 512, n, 0.02f, rng);
            check_values(what, 33, 768, n, 0.02f, rng);
        }
    }
    printf("ok: no row kernels in this build, llama.cpp's own are right\n");
    return 0;
}

int main() {
    std::mt19937 rng(7);
    if (!llama_row_kernels_supports_attention()) {
        CHECK(!ggml_cpu_has_avx2());
        CHECK(!llama_row_kernels_enabled());
        return check_stock(rng);
    }
    CHECK(llama_row_kernels_enabled());

    int n_types = 0;
    for (const auto & what : weight_types()) {
        if (!llama_row_kernels_supports_type(what.type)) {
            printf("%s: no row kernels in this build\n", ggml_type_name(what.type));
            continue;
        }
        ++n_types;
        for (float scale : { 0.02f, 60000.0f, 1e-7f }) {
            if (scale > 1.0f && ggml_blck_size(what.type) == 256) {
                scale = 8.0f;  // times scales of 6 bits more
            }
            check_values(what, 33, 256, 1, scale, rng);
            check_values(what, 17, 768, 5, scale, rng);
            check_values(what, 64, 512, 16, scale, rng);
        }
        check_values(what, 1, 256, 3, 0.02f, rng);
        check_values(what, 40, 256*9, what.type == GGML_TYPE_BF16 ? 63 : 66, 0.02f, rng);

        check_independence(what, 1, 256, rng);
        check_independence(what, 7, 512, rng);
        check_independence(what, 50, 1280, rng);
        const int before = n_packed;
        check_independence(what, 48, 1024, rng);
        printf("%s: %s\n", ggml_type_name(what.type), n_packed > before ? "packed as well" : "stock layout only");
        if (ggml_blck_size(what.type) < 256) {
            check_values(what, 19, 32*3, 7, 0.02f, rng);
            check_independence(what, 37, 32*19, rng);
        }
    }
    CHECK(n_types > 0);
    CHECK(n_packed > 0);
    printf("ok\n");
    return 0;
}
