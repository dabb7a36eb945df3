#pragma once

#include <cstdio>
#include <cstdlib>

// like assert, but there in every build
#define CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #x); \
            exit(1); \
        } \
    } while (0)
