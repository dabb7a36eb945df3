#pragma once

#include <cstdint>
#include <cstring>

// libllama is built for the baseline instruction set. these loops are the hot part of a verification step on the host
// (a vocabulary has 10^5 entries), so let the compiler emit wider versions and choose at load time where it can.
// haswell is chosen on CPUs of that maker alone, avx2 on all others
#if defined(__GLIBC__) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#    define LLAMA_ROW_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "avx2", "default")))
#else
#    define LLAMA_ROW_CLONES
#endif

// GCC would not inline a function of the baseline into a clone for another architecture, and a loop with a call is no vector loop
#if defined(__GNUC__)
#    define LLAMA_ROW_INLINE inline __attribute__((always_inline))
#else
#    define LLAMA_ROW_INLINE inline
#endif

// what stands for smaller exponents: e^-87 is 1e-38
static constexpr float LEAST_EXP = -87.0f;

// exp(x) for LEAST_EXP <= x <= 0, relative error below 2e-7: 2^k * p(r) with r = x - k ln 2, |r| <= ln(2)/2
static LLAMA_ROW_INLINE float exp_in_range(float x) {
    const int32_t k  = (int32_t) (x * 1.44269504f - 0.5f); // x <= 0: truncation rounds to the nearest
    const float   kf = (float) k;

    const float r = (x - kf * 0.693359375f) + kf * 2.12194440e-4f;

    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;

    const int32_t bits = (k + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));

    return p * scale;
}

// exp(x) for x <= 0
static LLAMA_ROW_INLINE float exp_neg(float x) {
    return exp_in_range(x < LEAST_EXP ? LEAST_EXP : x);
}
