#pragma once

// The threads of a block as coroutines: each runs until it waits at a barrier, in another order each time. That every thread
// reaches every barrier is checked.

#include "../check.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <ucontext.h>

class block {
  public:
    // runs f(thread) for all threads of a block
    static void run(int n_threads, const std::function<void(int)> & f) {
        block b(n_threads, f);
        current = &b;
        b.schedule();
        current = nullptr;
    }

    // what __syncthreads and threadgroup_barrier do
    static void barrier() {
        block & b = *current;
        b.waiting[b.thread] = true;
        CHECK(swapcontext(&b.contexts[b.thread], &b.scheduler) == 0);
    }

  private:
    static constexpr size_t STACK = 64*1024;

    block(int n_threads, const std::function<void(int)> & f) : n_threads(n_threads), f(f), contexts(n_threads), waiting(n_threads) {
        static std::vector<std::unique_ptr<char[]>> stacks;
        while ((int) stacks.size() < n_threads) {
            stacks.emplace_back(new char[STACK]);
        }
        for (int i = 0; i < n_threads; ++i) {
            prepare(contexts[i], stacks[i].get());
        }
    }

    void prepare(ucontext_t & context, char * stack) {
        CHECK(getcontext(&context) == 0);
        context.uc_stack.ss_sp   = stack;
        context.uc_stack.ss_size = STACK;
        context.uc_link          = &scheduler;
        makecontext(&context, entry, 0);
    }

    static void entry() {
        current->f(current->thread);
    }

    void schedule() {
        static std::mt19937 random(0);
        std::vector<int> order(n_threads);
        std::iota(order.begin(), order.end(), 0);

        for (;;) {
            std::shuffle(order.begin(), order.end(), random);
            waiting.assign(n_threads, false);
            for (int i : order) {
                thread = i;
                CHECK(swapcontext(&scheduler, &contexts[i]) == 0);
            }
            const auto n_waiting = std::count(waiting.begin(), waiting.end(), true);
            CHECK(n_waiting == 0 || n_waiting == n_threads);
            if (n_waiting == 0) {
                return;
            }
        }
    }

    static inline block * current = nullptr;

    const int                         n_threads;
    const std::function<void(int)> &  f;
    std::vector<ucontext_t>           contexts;
    std::vector<bool>                 waiting;
    ucontext_t                        scheduler;
    int                               thread = 0;
};
