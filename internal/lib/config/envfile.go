package config

import (
	"errors"
	"iter"
	"regexp"
	"strings"
)

// fileVariableLine is a variable in a file for systemd.
type fileVariableLine struct {
	name, text string
	line       int
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readVariables reads a file of variables as systemd does (EnvironmentFile in systemd.exec(5)): one NAME=VALUE a line,
// comments that begin with # or ;, and values in single or double quotes. A value over several lines is an error,
// because no setting needs one.
func readVariables(text string) iter.Seq2[fileVariableLine, error] {
	return func(yield func(fileVariableLine, error) bool) {
		n := 0
		for line := range strings.Lines(text) {
			n++
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' || line[0] == ';' {
				continue
			}
			v := fileVariableLine{line: n}
			var err error
			name, value, ok := strings.Cut(line, "=")
			if v.name = strings.TrimSpace(name); !ok || !variableName.MatchString(v.name) {
				err = errors.New("the line is no variable; write NAME=VALUE")
			} else {
				v.text, err = unquote(strings.TrimSpace(value))
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// unquote returns the value that a line of such a file has after its equals sign.
func unquote(value string) (string, error) {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote && quote != 0:
			quote = 0
		case c == '\\' && quote != '\'':
			if i++; i == len(value) {
				return "", errors.New("the value continues in the next line; write it in one line")
			}
			// Within double quotes, a backslash before another letter stays.
			if quote == '"' && !strings.ContainsRune("\"\\`$", rune(value[i])) {
				b.WriteByte('\\')
			}
			b.WriteByte(value[i])
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", errors.New("the value has no closing quote")
	}
	return b.String(), nil
}
