package cli

import (
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/postrider/postrider/internal/lib/config"
)

// masker replaces secrets and addresses in texts.
type masker struct {
	known *strings.Replacer // the secrets of the settings
}

const (
	maskedSecret  = config.MaskedSecret
	maskedAddress = "<address>"
)

// minSecret is the minimum length of a setting that is replaced wherever it occurs. Shorter ones occur by chance.
const minSecret = 4

// minPart is the minimum length of a part of a setting that is replaced wherever it occurs.
const minPart = 8

// newMasker returns a masker that knows the secrets of an installation.
func newMasker(c config.Config) *masker {
	secrets := []string{c.RelayUsername}
	for _, r := range c.Relays {
		secrets = append(secrets, r.Username)
	}
	for _, s := range config.Secrets(c) {
		secrets = append(secrets, secretParts(s)...)
	}
	if keys, err := os.ReadFile(filepath.Join(c.DataDir, "secret.key")); err == nil {
		secrets = append(secrets, secretParts(string(keys))...)
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD"} {
		secrets = append(secrets, os.Getenv(name))
	}
	// The replacer takes the first one that fits, and some are parts of others.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) >= minSecret {
			pairs = append(pairs, s, maskedSecret)
		}
	}
	return &masker{strings.NewReplacer(pairs...)}
}

// secretParts returns the value of a secret setting and the parts of it that are secret by themselves: the keys of a
// list, the values of header fields, the password of a URL, and the path of an address that takes requests.
func secretParts(s string) []string {
	all := []string{strings.TrimSpace(s)}
	for _, item := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		u, err := url.Parse(item)
		switch {
		case err != nil || u.Host == "":
			_, value, ok := strings.Cut(item, "=")
			if !ok {
				value = item
			}
			if len(value) >= minPart {
				all = append(all, item, value)
			}
		case u.Scheme == "https" || u.Scheme == "http":
			if path := u.RequestURI(); len(path) >= minPart {
				all = append(all, path)
			}
			fallthrough
		default:
			password, _ := u.User.Password()
			all = append(all, item, password)
		}
	}
	return all
}

var (
	// emailAddresses also finds addresses inside return paths, URLs and other addresses.
	emailAddresses = regexp.MustCompile(`("[^"\s]+"|[^\s<>"',;()\[\]{}|]+)(@|%40|=40)[\pL\pN._-]+`)
	credentials    = regexp.MustCompile(`(?i)\b((?:bearer|basic|auth plain|auth login) +)"?[^\s"]+`)
	// namedSecrets finds the values of members in JSON, also within another JSON text, of header fields and of
	// name=value.
	namedSecrets = regexp.MustCompile(`(?i)([\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|authorization|` +
		`cookie)[\w-]*\\?["']?\s?[=:]\s?)(?:\\"(?:[^"\\]|\\[^"])*(?:\\")?|"(?:[^"\\]|\\.)*"?|[^\s",;})\]]+)`)
	keys        = regexp.MustCompile(`\b(re|whsec)_[A-Za-z0-9_+/=-]{6,}`)
	longWords   = regexp.MustCompile(`[A-Za-z0-9_+/=-]{32,}`)
	uuids       = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	ipAddresses = regexp.MustCompile(`[0-9A-Fa-f.:]{7,}|[0-9A-Fa-f]*::[0-9A-Fa-f:]*`)
)

// settings returns a list of settings in which secrets and email addresses are replaced. Long words, such as folders,
// and the networks of proxies stay: an operator wrote them.
func (m *masker) settings(s string) string {
	s = m.known.Replace(s)
	return emailAddresses.ReplaceAllString(config.MaskURLs(s), maskedAddress)
}

// text returns a text in which secrets and addresses are replaced. It replaces too much rather than too little: each
// long word with a digit counts as a secret, unless it is an id or a path.
func (m *masker) text(s string) string {
	s = m.settings(s)
	s = credentials.ReplaceAllString(s, "${1}"+maskedSecret)
	s = namedSecrets.ReplaceAllString(s, "${1}"+maskedSecret)
	s = keys.ReplaceAllString(s, maskedSecret)
	s = longWords.ReplaceAllStringFunc(s, maskLongWord)
	return ipAddresses.ReplaceAllStringFunc(s, maskIP)
}

func maskLongWord(word string) string {
	if uuids.MatchString(word) || !strings.ContainsAny(word, "0123456789") {
		return word
	}
	parts := strings.Split(word, "/")
	for _, part := range parts {
		if len(part) >= 32 && !uuids.MatchString(part) {
			return maskedSecret
		}
	}
	if len(parts) > 2 && parts[0] == "" {
		return word // a path
	}
	return maskedSecret
}

// maskIP replaces an IP address of another machine, with or without a port.
func maskIP(word string) string {
	trimmed := strings.TrimRight(word, ".:")
	ip, err := netip.ParseAddr(trimmed)
	if err != nil {
		at, err := netip.ParseAddrPort(trimmed)
		if err != nil {
			return word
		}
		ip = at.Addr()
	}
	if ip.IsLoopback() || ip.IsUnspecified() {
		return word
	}
	return maskedAddress + word[len(trimmed):]
}
