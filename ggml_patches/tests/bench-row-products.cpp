// How fast the row kernels multiply, next to llama.cpp's own and to the peaks of the machine.
//
//   bench-row-products [threads]      [type] [rows columns]
//
// Prints, for each type, shape and number n of activation columns, medians of interleaved rounds: milliseconds, 10^9
// products a second and GB of weights a second, and the ratio of llama.cpp's time to ours.

#include "row-product.h"

#include "llama-row-kernels.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

struct shape {
    int64_t m;
    int64_t k;
};

static double seconds_of(product & op, int n_threads) {
    const auto start = std::chrono::steady_clock::now();
    op.compute(n_threads);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size()/2];
}

static void measure(const weight_type & what, shape s, int64_t n, int n_threads) {
    std::mt19937 rng(1);
    const auto weights = random_weights(what, s.m*s.k, 0.02f, rng);
    std::vector<float> columns(s.k*n);
    std::normal_distribution<float> normal;
    for (float & x : columns) {
        x = normal(rng);
    }
    // each side keeps the weights as a model does
    product ours_op(what.type, s.m, s.k, n);
    ours_op.make_room();
    llama_row_kernels_set_enabled(false);
    product stock_op(what.type, s.m, s.k, n, true);
    for (product * op : { &stock_op, &ours_op }) {
        op->set_weights(weights);
        op->set_values(columns.data());
    }
    llama_row_kernels_set_enabled(true);
    ours_op.compute(n_threads);  // packs

    // enough repeats to see a small matrix behind the threads that wake up; few of the large ones
    const int n_rounds = std::max(5, int(200e6/double(s.m*s.k*n)));
    std::vector<double> ours;
    std::vector<double> stock;
    for (int round = 0; round < std::min(n_rounds, 200); ++round) {
        llama_row_kernels_set_enabled(true);
        ours.push_back(seconds_of(ours_op, n_threads));
        llama_row_kernels_set_enabled(false);
        stock.push_back(seconds_of(stock_op, n_threads));
    }
    llama_row_kernels_set_enabled(true);
    const double t = median(ours);
    printf("%-7s %6lld x %-5lld n %3lld  %8.3f ms  %6.1f G/s  %5.1f GB/s  stock/ours %.2f\n", ggml_type_name(what.type),
           (long long) s.m, (long long) s.k, (long long) n, 1e3*t, 1e-9*double(s.m*s.k*n)/t,
           1e-9*double(weights.size())/t, median(stock)/t);
    fflush(stdout);
}

int main(int argc, char ** argv) {
    const int    n_threads = argc > 1 ? atoi(argv[1]) : 2;
    const char * only      = argc > 2 ? argv[2] : nullptr;
    std::vector<shape> shapes = { { 576, 576 }, { 1536, 576 }, { 576, 1536 }, { 1536, 1536 }, { 8960, 1536 }, { 1536, 8960 } };
    if (argc > 4) {
        shapes = { { atoll(argv[3]), atoll(argv[4]) } };
    }
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    double read_bytes;
    double products;
    if (n_threads < 1 || !llama_cpu_peaks(n_threads, &read_bytes, &products)) {
        fprintf(stderr, "no row kernels in this build, or no such number of threads\n");
        return 1;
    }
    printf("%d threads; peaks: %.1f G products/s, %.1f GB/s\n", n_threads, 1e-9*products, 1e-9*read_bytes);
    printf("stock: llama.cpp's kernels; the weights are repacked, or not, as in a model\n");
    for (const auto & what : weight_types()) {
        if ((only && strcmp(only, ggml_type_name(what.type)) != 0) || !llama_row_kernels_supports_type(what.type)) {
            continue;
        }
        for (const shape & s : shapes) {
            if (s.k % ggml_blck_size(what.type) == 0) {
                for (int64_t n : { 1, 2, 4, 8, 16, 64, 512 }) {
                    measure(what, s, n, n_threads);
                }
            }
        }
    }
    return 0;
}
