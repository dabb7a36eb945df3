#include "panel-kernels.h"
#include "panel-rows.h"

#if defined(PANEL_LANES)

void panel_pack(const char * w, size_t stride, char * out) {
    const panel_rows_full rows = panel_rows_full::make(w, stride, PANEL_LANES);
    // past the caches: a model is larger
    size_t off = 0;
    for (; off + 16 <= stride; off += 16) {
        pvi v[4];
        pv_load_dwords(rows, off, v);
        panel_for<4>([&](auto i) PANEL_LAMBDA { PV_SI(stream)((pvi *) (out + PANEL_LANES*(off + 4*i)), v[i]); });
    }
    for (; off < stride; off += 4) {
        PV_SI(stream)((pvi *) (out + PANEL_LANES*off), pv_gather32(rows, off));
    }
    _mm_sfence();
}

#endif
