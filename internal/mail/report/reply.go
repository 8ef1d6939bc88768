package report

import "strings"

// splitReply extracts the reply code and the enhanced status code from a host's reply such as "550 5.1.1 no such user".
// Other words may precede the codes. The result text is all of s, because the words before the codes are also relevant.
func splitReply(s string) (code int, enhanced, text string) {
	for i := 0; i+3 <= len(s); i++ {
		if !digit(s[i]) || i > 0 && (wordish(s[i-1]) || s[i-1] == '.') {
			continue
		}
		end := i
		for end < len(s) && (digit(s[end]) || s[end] == '.' && end+1 < len(s) && digit(s[end+1])) {
			end++
		}
		number := s[i:end]
		switch {
		case end < len(s) && wordish(s[end]) || measures(s[end:]):
		case code == 0 && len(number) == 3 && (number[0] == '4' || number[0] == '5') && digit(number[1]) && number[1] <= '7':
			code = int(number[0]-'0')*100 + int(number[1]-'0')*10 + int(number[2]-'0')
		case enhanced == "" && isStatus(number):
			enhanced = number
		}
		i = end - 1
	}
	return code, enhanced, s
}

// measures reports whether the word after a number is a unit of measure, which means that the number is not a code.
func measures(after string) bool {
	word, _, _ := strings.Cut(strings.TrimPrefix(after[:min(len(after), 12)], " "), " ")
	switch strings.ToLower(strings.Trim(word, ".,;:()")) {
	case "kb", "mb", "kib", "mib", "kbytes", "mbytes", "bytes", "octets", "kilobytes", "megabytes", "seconds", "minutes",
		"hours", "days":
		return true
	}
	return false
}

// isStatus reports whether s is an enhanced status code (RFC 3463 section 2).
func isStatus(s string) bool {
	class, rest, ok := strings.Cut(s, ".")
	if !ok || class != "2" && class != "4" && class != "5" {
		return false
	}
	subject, detail, ok := strings.Cut(rest, ".")
	return ok && shortNumber(subject) && shortNumber(detail)
}

func shortNumber(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 3
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func wordish(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80 || c == '_' || c == '@'
}
