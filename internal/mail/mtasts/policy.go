package mtasts

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Mode says what a sender does with a mail host that does not satisfy a policy.
type Mode string

// These are the modes of a policy.
const (
	Enforce Mode = "enforce" // the host gets no mail
	Testing Mode = "testing" // the host gets the mail, and TLS reports mention the failure
	None    Mode = "none"    // the policy was withdrawn
)

// MaxAge is the longest lifetime that a policy may have.
const MaxAge = 31_557_600 * time.Second

// Policy is an MTA-STS policy. The zero Policy, whose Mode is "", stands for no policy.
type Policy struct {
	Mode   Mode
	MaxAge time.Duration
	// MX are the patterns for mail hosts, in A-labels and lower case. A pattern that begins with "*." matches any one
	// label in its place.
	MX []string
}

// ParsePolicy parses the body of a policy (RFC 8461 section 3.2). It refuses a policy whose Text has more than
// MaxPolicySize bytes, because such a text could be stored but not parsed again.
func ParsePolicy(body string) (Policy, error) {
	var p Policy
	if len(body) > MaxPolicySize {
		return p, fmt.Errorf("the policy has more than %d bytes", MaxPolicySize)
	}
	if !utf8.ValidString(body) {
		return p, errors.New("the policy is not UTF-8")
	}
	fields := map[string]string{}
	var patterns []string
	for n, line := range strings.Split(body, "\n") {
		line = strings.TrimRight(strings.TrimSuffix(line, "\r"), " \t")
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimLeft(value, " \t")
		switch {
		case !ok || !isFieldName(name):
			return p, fmt.Errorf("line %d of the policy is not a name and a value", n+1)
		case value == "" || strings.ContainsFunc(value, isControl):
			return p, fmt.Errorf("line %d of the policy has an invalid value", n+1)
		case name == "mx":
			patterns = append(patterns, value)
		default:
			if _, repeated := fields[name]; !repeated {
				fields[name] = value
			}
		}
	}
	if fields["version"] != version {
		return p, fmt.Errorf("the policy's version is %.80q instead of %s", fields["version"], version)
	}
	p.Mode = Mode(fields["mode"])
	if p.Mode != Enforce && p.Mode != Testing && p.Mode != None {
		return Policy{}, fmt.Errorf("the policy's mode is %.80q instead of enforce, testing or none", fields["mode"])
	}
	var err error
	if p.MaxAge, err = parseMaxAge(fields["max_age"]); err != nil {
		return Policy{}, err
	}
	if p.Mode == None {
		return p, nil
	}
	if p.MX, err = parsePatterns(patterns); err != nil {
		return Policy{}, err
	}
	if len(p.Text()) > MaxPolicySize {
		return Policy{}, fmt.Errorf("the policy has more than %d bytes with a space after each colon", MaxPolicySize)
	}
	return p, nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func parseMaxAge(text string) (time.Duration, error) {
	seconds, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > 10 || time.Duration(min(seconds, 1e10))*time.Second > MaxAge {
		return 0, fmt.Errorf("the policy's max_age is %.80q instead of 0 to %d", text, MaxAge/time.Second)
	}
	return time.Duration(seconds) * time.Second, nil
}

// parsePatterns returns the patterns in the form for comparison, without repetitions.
func parsePatterns(texts []string) (all []string, err error) {
	seen := map[string]bool{}
	for _, text := range texts {
		host, wild := strings.CutPrefix(text, "*.")
		if host, err = lowerASCII(host); err != nil || !IsHost(host) {
			return nil, fmt.Errorf("the policy's mx %.80q is not a host name", text)
		}
		if wild {
			host = "*." + host
		}
		if !seen[host] {
			seen[host] = true
			all = append(all, host)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the policy has no mx")
	}
	return all, nil
}

// IsHost reports whether a name in lower case is a Domain of RFC 5321 section 4.1.2.
func IsHost(name string) bool {
	if len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label, "-") || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// Matches reports whether the policy lists a mail host (RFC 8461 section 4.1). The host is the name in the MX record,
// or the recipient domain itself if it has no MX record.
func (p Policy) Matches(host string) bool {
	host, err := lowerASCII(strings.TrimSuffix(host, "."))
	if err != nil || host == "" {
		return false
	}
	label, parent, _ := strings.Cut(host, ".")
	for _, pattern := range p.MX {
		if suffix, wild := strings.CutPrefix(pattern, "*."); wild && label != "" && suffix == parent || pattern == host {
			return true
		}
	}
	return false
}

// Equal reports whether two policies say the same.
func (p Policy) Equal(q Policy) bool {
	return p.Mode == q.Mode && p.MaxAge == q.MaxAge && slices.Equal(p.MX, q.MX)
}

// Lines returns the policy as the lines of a policy file, for storage and for the policy-string of TLS reports (RFC
// 8460 section 4.4). The zero Policy has no lines.
func (p Policy) Lines() []string {
	if p.Mode == "" {
		return nil
	}
	lines := []string{"version: " + version, "mode: " + string(p.Mode)}
	for _, pattern := range p.MX {
		lines = append(lines, "mx: "+pattern)
	}
	return append(lines, fmt.Sprintf("max_age: %d", p.MaxAge/time.Second))
}

// Text returns the policy as the content of a policy file. ParsePolicy returns the same policy for it.
func (p Policy) Text() string {
	if p.Mode == "" {
		return ""
	}
	return strings.Join(p.Lines(), "\n") + "\n"
}
