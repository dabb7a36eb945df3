#include "panel-packed.h"
#include "panel-kernels.h"
#include "panel.h"

#include "ggml-backend.h"

#include <atomic>

struct panel_packed {
    std::atomic<panel_packing> state;
    char *                     room;
    void (*packed)(void * user);
    void *                     user;
};

// Nothing else gives weights in host memory an extra.
static panel_packed * packed_of(const ggml_tensor * w) {
    return w->extra && w->buffer && ggml_backend_buffer_is_host(w->buffer) ? (panel_packed *) w->extra : nullptr;
}

size_t ggml_panel_packed_size(const struct ggml_tensor * w) {
    if (!ggml_panel_supports_weights(w)) {
        return 0;
    }
    const panel_family * family = panel_family_of(w->type);
    const bool fits = family->pack != nullptr && w->ne[1] % family->n_rows == 0 && w->nb[1] % 4 == 0 &&
                      w->nb[1] == ggml_row_size(w->type, w->ne[0]);
    return fits ? GGML_PAD(ggml_nbytes(w), 64) : 0;
}

void * ggml_panel_packed_new(struct ggml_tensor * w, void * room, void (*packed)(void * user), void * user) {
    GGML_ASSERT(w->extra == nullptr && ggml_backend_buffer_is_host(w->buffer));
    panel_packed * kept = new panel_packed { { PANEL_STOCK }, (char *) room, packed, user };
    w->extra = kept;
    return kept;
}

void ggml_panel_packed_free(struct ggml_tensor * w, void * kept) {
    if (w->extra == kept) {
        w->extra = nullptr;
    }
    delete (panel_packed *) kept;
}

panel_packing panel_packed_begin(const ggml_tensor * w) {
    panel_packed * kept = packed_of(w);
    if (!kept) {
        return PANEL_STOCK;
    }
    panel_packing state = kept->state.load(std::memory_order_acquire);
    if (state == PANEL_STOCK && kept->state.compare_exchange_strong(state, PANEL_PACK)) {
        return PANEL_PACK;
    }
    // another context is at it
    return state == PANEL_PACKED ? PANEL_PACKED : PANEL_STOCK;
}

void panel_packed_fill(const ggml_tensor * w, int i, int n) {
    const panel_family * family   = panel_family_of(w->type);
    const int64_t        n_panels = w->ne[1]/family->n_rows;
    const size_t         size     = family->n_rows*w->nb[1];
    for (int64_t p = n_panels*i/n; p < n_panels*(i + 1)/n; p++) {
        family->pack((const char *) w->data + p*size, w->nb[1], packed_of(w)->room + p*size);
    }
}

void panel_packed_end(const ggml_tensor * w) {
    panel_packed * kept = packed_of(w);
    kept->state.store(PANEL_PACKED, std::memory_order_release);
    kept->packed(kept->user);
}

void ggml_panel_packed_fill(struct ggml_tensor * w) {
    if (panel_packed_begin(w) == PANEL_PACK) {
        panel_packed_fill(w, 0, 1);
        panel_packed_end(w);
    }
}

const char * panel_packed_room(const ggml_tensor * w) {
    return packed_of(w)->room;
}

const char * panel_packed_data(const ggml_tensor * w) {
    const panel_packed * kept = packed_of(w);
    return kept && kept->state.load(std::memory_order_acquire) == PANEL_PACKED ? kept->room : nullptr;
}
