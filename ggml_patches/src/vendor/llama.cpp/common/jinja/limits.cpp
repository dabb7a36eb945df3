#include "jinja/limits.h"

#include <chrono>
#include <ctime>

namespace jinja {

static thread_local limits * current = nullptr;
static thread_local int      depth   = 0;
static thread_local size_t   n_held_bytes = 0;  // by all shares

// comparisons of bytes by one call of find: about a second
static constexpr double MAX_WORK = 8e9;

// seconds that this thread has used the processor: a busy machine does not make a template slow
static double now() {
#ifdef CLOCK_THREAD_CPUTIME_ID
    timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0) {
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
#endif
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

limits::limits(double seconds, size_t n_bytes)
    : n_seconds_end(now() + seconds), n_bytes_max(n_held_bytes + n_bytes), outermost(current == nullptr) {
    if (outermost) {
        current = this;
    }
}

limits::~limits() {
    if (outermost) {
        current = nullptr;
    }
}

void limits::spend(size_t n_bytes) {
    if (current) {
        current->step(n_bytes, 1.0 + n_bytes / 1024.0);
    }
}

void limits::work(double n_bytes) {
    if (!current) {
        return;
    }
    if (n_bytes > MAX_WORK) {
        current->exceeded = true;
        throw limit_exceeded("the template takes too long");
    }
    current->step(0, n_bytes / 1024.0);
}

void limits::step(size_t n_bytes, double n_new_steps) {
    if (exceeded) {  // whoever goes on after that does not get far
        throw limit_exceeded("the template takes too much time or memory");
    }
    if (n_bytes > n_bytes_max || n_held_bytes > n_bytes_max - n_bytes) {
        exceeded = true;
        throw limit_exceeded("the template uses too much memory");
    }
    n_steps += n_new_steps;
    if (n_steps >= 256.0) {  // a clock is too slow to be read for each
        n_steps = 0.0;
        if (now() > n_seconds_end) {
            exceeded = true;
            throw limit_exceeded("the template takes too long");
        }
    }
}

limits::share::~share() {
    n_held_bytes -= n_held;
}

void limits::share::grow(size_t n_bytes) {
    spend(n_bytes);
    n_held       += n_bytes;
    n_held_bytes += n_bytes;
}

limits::level::level() {
    if (depth >= MAX_DEPTH) {
        throw limit_exceeded("the template nests too deeply");
    }
    depth++;
}

limits::level::~level() {
    depth--;
}

} // namespace jinja
