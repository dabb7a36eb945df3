// what a benchmark found: kept as rows, printed as one table of plain text, and as JSON
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

// a median between its quartiles, of values in any unit
struct spread {
    double median = 0;
    double low    = 0;
    double high   = 0;

    static spread of(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        const size_t n = values.size();
        return n == 0 ? spread{} : spread{ values[n/2], values[n/4], values[n - 1 - n/4] };
    }
};

class report {
  public:
    void section(const std::string & title, const std::string & columns = "") {
        sections.push_back({ title, columns, {} });
    }

    // a text of a section
    void fact(const std::string & name, const std::string & text) {
        sections.back().rows.push_back({ name, text, {}, "", false });
    }

    // a measured row; note tells more in the table and in JSON
    void row(const std::string & name, spread value, const std::string & unit, const std::string & note = "") {
        sections.back().rows.push_back({ name, note, value, unit, true });
    }

    // what was not printed before
    void print() {
        for (; n_printed < sections.size(); ++n_printed) {
            const auto & s = sections[n_printed];
            printf("\n%-34s %s\n", s.title.c_str(), s.columns.c_str());
            for (const auto & r : s.rows) {
                if (r.measured) {
                    printf("  %-32s %9.3f %-3s [%.3f .. %.3f]  %s\n", r.name.c_str(), r.value.median, r.unit.c_str(),
                        r.value.low, r.value.high, r.text.c_str());
                } else {
                    printf("  %-32s %s\n", r.name.c_str(), r.text.c_str());
                }
            }
        }
        fflush(stdout);
    }

    bool write_json(const char * path) const {
        FILE * file = fopen(path, "w");
        if (!file) {
            return false;
        }
        const char * comma = "";
        fprintf(file, "[");
        for (const auto & s : sections) {
            for (const auto & r : s.rows) {
                fprintf(file, "%s\n  {\"section\": %s, \"name\": %s, \"text\": %s", comma, quoted(s.title).c_str(),
                    quoted(r.name).c_str(), quoted(r.text).c_str());
                if (r.measured) {
                    fprintf(file, ", \"unit\": %s, \"median\": %.6g, \"quartiles\": [%.6g, %.6g]", quoted(r.unit).c_str(),
                        r.value.median, r.value.low, r.value.high);
                }
                fprintf(file, "}");
                comma = ",";
            }
        }
        fprintf(file, "\n]\n");
        return fclose(file) == 0;
    }

  private:
    struct entry {
        std::string name;
        std::string text;
        spread      value;
        std::string unit;
        bool        measured;
    };

    struct group {
        std::string        title;
        std::string        columns;
        std::vector<entry> rows;
    };

    static std::string quoted(const std::string & text) {
        std::string res = "\"";
        for (const unsigned char c : text) {
            if (c == '"' || c == '\\') {
                res += '\\';
                res += (char) c;
            } else if (c < 0x20) {
                res += ' ';
            } else {
                res += (char) c;
            }
        }
        return res + "\"";
    }

    std::vector<group> sections;
    size_t             n_printed = 0;
};
