#pragma once

// A device that is none: what it holds lies in memory of its own kind, which no other device is told to read, and the CPU
// computes for it. It has the operations that it is told to have, and counts what is copied to it and from it.

#include "ggml-backend-impl.h"
#include "ggml-backend.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

struct fake_device {
    std::function<bool(const ggml_tensor *)> lacks = [](const ggml_tensor *) { return false; };

    size_t  max_buffer = SIZE_MAX; // larger ones cannot be had
    int64_t n_sent     = 0; // copies
    int64_t n_fetched  = 0;

    ggml_backend_reg         reg  = { GGML_BACKEND_API_VERSION, { reg_name, n_devices, nullptr, nullptr }, this };
    ggml_backend_device      dev  = { device_functions(), &reg, this };
    ggml_backend_buffer_type buft = { { name_of_type, alloc, alignment, nullptr, nullptr, nullptr }, &dev, this };

    static fake_device & of(ggml_backend_buffer_t buffer)  { return *(fake_device *) buffer->buft->context; }
    static fake_device & of(ggml_backend_dev_t device)     { return *(fake_device *) device->context; }

    static const char * reg_name(ggml_backend_reg_t)                  { return "FAKE"; }
    static size_t       n_devices(ggml_backend_reg_t)                 { return 1; }
    static const char * name(ggml_backend_dev_t)                      { return "FAKE0"; }
    static const char * name_of_backend(ggml_backend_t)               { return "FAKE0"; }
    static const char * name_of_type(ggml_backend_buffer_type_t)      { return "FAKE0"; }
    static size_t       alignment(ggml_backend_buffer_type_t)         { return 128; }
    static enum ggml_backend_dev_type type(ggml_backend_dev_t)        { return GGML_BACKEND_DEVICE_TYPE_GPU; }
    static ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t d) { return &of(d).buft; }

    static void memory(ggml_backend_dev_t, size_t * free, size_t * total) {
        *free = *total = (size_t) 1 << 34;
    }

    static void props(ggml_backend_dev_t d, ggml_backend_dev_props * p) {
        *p = {};
        p->name = p->description = name(d);
        p->type = type(d);
        memory(d, &p->memory_free, &p->memory_total);
    }

    static bool supports_op(ggml_backend_dev_t d, const ggml_tensor * op) {
        return op->op != GGML_OP_CUSTOM && !of(d).lacks(op) && ggml_backend_dev_supports_op(cpu(), op);
    }

    static bool supports_buft(ggml_backend_dev_t d, ggml_backend_buffer_type_t buft) {
        return buft == &of(d).buft;
    }

    static ggml_backend_dev_t cpu() {
        return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    }

    static ggml_backend_device_i device_functions() {
        ggml_backend_device_i f = {};
        f.get_name        = name;
        f.get_description = name;
        f.get_memory      = memory;
        f.get_type        = type;
        f.get_props       = props;
        f.init_backend    = init_backend;
        f.get_buffer_type = buffer_type;
        f.supports_op     = supports_op;
        f.supports_buft   = supports_buft;
        return f;
    }

    static ggml_backend_t init_backend(ggml_backend_dev_t d, const char *) {
        static ggml_guid guid = { 0x66, 0x61, 0x6b, 0x65 };
        ggml_backend_i f = {};
        f.get_name      = name_of_backend;
        f.free          = [](ggml_backend_t backend) {
            ggml_backend_free((ggml_backend_t) backend->context);
            delete backend;
        };
        f.graph_compute = [](ggml_backend_t backend, ggml_cgraph * gf) {
            return ggml_backend_graph_compute((ggml_backend_t) backend->context, gf);
        };
        return new ggml_backend { &guid, f, d, ggml_backend_dev_init(cpu(), nullptr) };
    }

    static ggml_backend_buffer_t alloc(ggml_backend_buffer_type_t buft, size_t size) {
        if (size > ((fake_device *) buft->context)->max_buffer) {
            return nullptr;
        }
        ggml_backend_buffer_i f = {};
        f.free_buffer   = [](ggml_backend_buffer_t buffer) { free(buffer->context); };
        f.get_base      = [](ggml_backend_buffer_t buffer) { return buffer->context; };
        f.memset_tensor = [](ggml_backend_buffer_t, ggml_tensor * t, uint8_t value, size_t offset, size_t n) {
            memset((char *) t->data + offset, value, n);
        };
        f.set_tensor = [](ggml_backend_buffer_t buffer, ggml_tensor * t, const void * data, size_t offset, size_t n) {
            of(buffer).n_sent++;
            memcpy((char *) t->data + offset, data, n);
        };
        f.get_tensor = [](ggml_backend_buffer_t buffer, const ggml_tensor * t, void * data, size_t offset, size_t n) {
            of(buffer).n_fetched++;
            memcpy(data, (const char *) t->data + offset, n);
        };
        f.clear = [](ggml_backend_buffer_t buffer, uint8_t value) { memset(buffer->context, value, buffer->size); };
        const size_t padded = (size + 127)/128*128;
        return ggml_backend_buffer_init(buft, f, aligned_alloc(128, padded ? padded : 128), size);
    }
};
