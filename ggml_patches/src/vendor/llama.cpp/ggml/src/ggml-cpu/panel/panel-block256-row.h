#pragma once

// Q6_K and a single column, row after row: for one column it is cheaper to unpack along the rows than to interleave them, and
// memory is read as it lies. The integers are those of the tiles and so are the float steps, hence the results are the same.

#include "panel-block256-acts.h"
#include "panel-block256-unpack.h"

#if defined(PANEL_LANES)

#include <stddef.h>
#include <stdint.h>

// A super-block of eight rows: what is between the integers of the rows and the floats of the lanes. Whole rows of them are kept,
// to read the rows from end to end.
struct row_sums256 {
    __m256i sums[8];  // their eight int32 are to be added up
    float   d[8];
};

// The sum of scale * (q . a) of a super-block, in eight parts.
static inline __m256i row_dot_q6_K(const block_q6_K & b, const acts256 & a) {
    const __m256i m4 = _mm256_set1_epi8(0x0f);
    const __m256i m2 = _mm256_set1_epi8(0x30);

    // int16 scales of the even runs in the low half and of the odd ones in the high half, as the runs lie in 32 weights
    const __m128i sc      = _mm_loadu_si128((const __m128i *) b.scales);
    const __m128i by_half = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m256i scales  = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(sc, by_half));

    __m256i sum = _mm256_setzero_si256();
    PANEL_UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256i l0 = _mm256_loadu_si256((const __m256i *) (b.ql + 64*i));
        const __m256i l1 = _mm256_loadu_si256((const __m256i *) (b.ql + 64*i + 32));
        const __m256i h  = _mm256_loadu_si256((const __m256i *) (b.qh + 32*i));
        const __m256i q[4] = {
            _mm256_or_si256(_mm256_and_si256(l0, m4),                       _mm256_and_si256(_mm256_slli_epi16(h, 4), m2)),
            _mm256_or_si256(_mm256_and_si256(l1, m4),                       _mm256_and_si256(_mm256_slli_epi16(h, 2), m2)),
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l0, 4), m4), _mm256_and_si256(h, m2)),
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l1, 4), m4), _mm256_and_si256(_mm256_srli_epi16(h, 2), m2)),
        };
        PANEL_UNROLL
        for (int j = 0; j < 4; j++) {
            const __m256i qa    = _mm256_maddubs_epi16(q[j], _mm256_load_si256((const __m256i *) (a.qs + 128*i + 32*j)));
            const __m256i index = _mm256_set1_epi16((short) (0x0100 + 0x0202*(4*i + j)));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(qa, _mm256_shuffle_epi8(scales, index)));
        }
    }
    const __m256i offset = _mm256_madd_epi16(_mm256_cvtepi8_epi16(sc), _mm256_load_si256((const __m256i *) a.sums16));
    return _mm256_sub_epi32(sum, _mm256_slli_epi32(offset, 5));
}

// Lane r: the sum of the eight int32 of v[r].
static inline __m256i row_add8(const __m256i v[8]) {
    const __m256i s0 = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i s1 = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(s0, s1, 0x20), _mm256_permute2x128_si256(s0, s1, 0x31));
}

// How far ahead memory is fetched: the rows follow each other, and the processor alone foresees too little.
static constexpr int ROW_AHEAD = 16*1024;

// dst[r] = row r of w . the column, for r < n_rows <= 8; dst has room for eight, s for the super-blocks of a row.
static inline void rows_mul_q6_K(int64_t k, const char * w, size_t w_stride, int n_rows, const acts256 * acts, float * dst, row_sums256 * s) {
    const int64_t n = k/256;
    for (int r = 0; r < n_rows; r++) {
        const block_q6_K * b = (const block_q6_K *) (w + r*w_stride);
        for (int64_t i = 0; i < n; i++) {
            for (size_t o = 0; o < sizeof(block_q6_K); o += 64) {
                _mm_prefetch((const char *) (b + i) + ROW_AHEAD + o, _MM_HINT_T1);
            }
            _mm256_store_si256(&s[i].sums[r], row_dot_q6_K(b[i], acts[i]));
            s[i].d[r] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(b[i].d)));
        }
    }
    __m256 acc = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i++) {
        const __m256 sum = _mm256_mul_ps(_mm256_cvtepi32_ps(row_add8(s[i].sums)), _mm256_load_ps(s[i].d));
        acc = _mm256_fmadd_ps(sum, _mm256_set1_ps(acts[i].d), acc);
    }
    _mm256_storeu_ps(dst, acc);
}

#endif  // PANEL_LANES
