#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

namespace jinja {

// A template comes with a model: it is a program of unknown origin, which must not hang or end the process that runs it.

// not to be caught by what runs templates to learn about them
struct limit_exceeded : public std::exception {
    std::string message;
    explicit limit_exceeded(const std::string & message) : message(message) {}
    const char * what() const noexcept override { return message.c_str(); }
};

// While one of these lives, the templates that its thread runs may take so much time of the processor, and hold values and text
// of so many bytes, all of them together. Without one there are no such limits. They do not nest: the outermost counts.
class limits {
  public:
    limits(double seconds, size_t n_bytes);
    ~limits();

    limits(const limits &) = delete;
    limits & operator=(const limits &) = delete;

    // one step, which makes a text of so many bytes. throws limit_exceeded
    static void spend(size_t n_bytes = 0);

    // so many comparisons of bytes are about to be made, at worst. throws limit_exceeded
    static void work(double n_bytes);

    // memory that something holds. throws limit_exceeded when it is taken
    class share {
      public:
        explicit share(size_t n_bytes = 0) { grow(n_bytes); }
        share(const share & other) : share(other.n_held) {}
        share(share && other) noexcept : n_held(other.n_held) { other.n_held = 0; }
        ~share();

        share & operator=(share other) noexcept {
            std::swap(n_held, other.n_held);
            return *this;
        }

        void grow(size_t n_bytes);

      private:
        size_t n_held = 0;
    };

    // how deep expressions, statements, calls and values may nest: all of these are walked by recursive functions
    static constexpr int MAX_DEPTH = 200;

    // one level of a recursion. throws limit_exceeded
    class level {
      public:
        level();
        ~level();

        level(const level &) = delete;
        level & operator=(const level &) = delete;
    };

  private:
    double n_seconds_end;  // on the clock of the thread
    size_t n_bytes_max;
    double n_steps = 0.0;  // since the clock was read
    bool   outermost;
    bool   exceeded = false;

    void step(size_t n_bytes, double n_new_steps);
};

} // namespace jinja
