#pragma once

// Panels that are kept: room beside weights in the stock layout, which the first product fills. Nothing has to be interleaved
// by the next ones. The weights stay what they are for everything else, and results are the same to the bit.

#include "ggml.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of room for the weights w, a multiple of 64; 0: they are not packed.
size_t ggml_panel_packed_size(const struct ggml_tensor * w);

// Gives w, of a host buffer, its room: 64-byte aligned, and there as long as the weights are used. packed(user) is called once
// the products need the stock layout no longer. The result is for ggml_panel_packed_free.
void * ggml_panel_packed_new(struct ggml_tensor * w, void * room, void (*packed)(void * user), void * user);
void   ggml_panel_packed_free(struct ggml_tensor * w, void * kept);

// Fills the room now, instead of in the first product.
void ggml_panel_packed_fill(struct ggml_tensor * w);

#ifdef __cplusplus
}

// what a product does about the panels of w, decided by one thread for all of them
enum panel_packing { PANEL_STOCK, PANEL_PACK, PANEL_PACKED };
panel_packing panel_packed_begin(const ggml_tensor * w);

// fills part i of n; all parts are to be filled before panel_packed_end
void panel_packed_fill(const ggml_tensor * w, int i, int n);
void panel_packed_end(const ggml_tensor * w);

// the room, for one who knows that it is filled, and the same or nullptr where it is not
const char * panel_packed_room(const ggml_tensor * w);
const char * panel_packed_data(const ggml_tensor * w);
#endif
