// JSON before it is parsed: how deep it is, and where a value ends.
#pragma once

namespace stet {

// Follows the brackets of JSON, one character after the other.
class JsonBrackets {
  public:
    // 1 where `c` opens a list or an object, -1 where it closes one, else 0: also inside of
    // strings.
    int add(char c) {
        if (in_string_) {
            if (is_escaped_) {
                is_escaped_ = false;
            } else if (c == '\\') {
                is_escaped_ = true;
            } else if (c == '"') {
                in_string_ = false;
            }
            return 0;
        }
        if (c == '"') in_string_ = true;
        if (c == '{' || c == '[') return 1;
        return c == '}' || c == ']' ? -1 : 0;
    }

  private:
    bool in_string_ = false;
    bool is_escaped_ = false;
};

}  // namespace stet
