package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
)

// blobSchemes are the schemes of blob_url.
var blobSchemes = []string{"file", "s3", "mem"}

// schemeLike matches a folder name that begins like a URL, such as s3:/bucket.
var schemeLike = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:(/|$)`)

// checkBlobs checks the form of blob_url.
func (l *loader) checkBlobs() {
	where := l.config.BlobURL
	scheme, rest, isURL := strings.Cut(where, "://")
	switch {
	case !isURL && schemeLike.MatchString(where):
		l.wrong("blob_url", "%q is neither a folder nor a URL; write s3://BUCKET?region=REGION, file:///folder or a folder",
			where)
	case isURL && !slices.Contains(blobSchemes, scheme):
		l.wrong("blob_url", "scheme %q is not known; use a folder, file://, s3:// or mem://", scheme)
	case scheme == "file" && isURL && !strings.HasPrefix(rest, "/"):
		l.wrong("blob_url", "%q has no absolute folder; write file:///folder, or a folder alone", where)
	case scheme == "s3" && isURL && strings.Trim(strings.SplitN(rest, "?", 2)[0], "/") == "":
		l.wrong("blob_url", "names no bucket; write s3://BUCKET?region=REGION")
	}
}

// checkPeople checks the settings that name the operator's team, the sender of notices, and the content filter.
func (l *loader) checkPeople() {
	c := &l.config
	if c.OperatorTeam != "" {
		if c.OperatorTeam = strings.ToLower(c.OperatorTeam); !id.Valid(c.OperatorTeam) {
			l.wrong("operator_team", "%q is no id of a team; `postrider teams list` shows the ids, such as "+
				"0190f6a1-0000-7000-8000-00000000000a", c.OperatorTeam)
		}
	}
	if c.NoticeFrom != "" && !isSender(c.NoticeFrom) {
		l.wrong("notice_from", "%q is no sender; write notices@example.com or Postrider <notices@example.com>",
			c.NoticeFrom)
	}
	if c.Milter != "" {
		kind, rest, _ := strings.Cut(c.Milter, ":")
		if !(kind == "unix" && filepath.IsAbs(rest) || kind == "inet" && hostPort(rest, false)) {
			l.wrong("milter", "%q is no address of a content filter; write unix:/path or inet:127.0.0.1:8890", c.Milter)
		}
	}
}

// isSender reports whether a text is an address, or a name and an address in angle brackets.
func isSender(text string) bool {
	address, ok := addressOf(text)
	at := strings.LastIndexByte(address, '@')
	return ok && at > 0 && !strings.ContainsAny(address, " \t<>,") && domain.MatchString(hostName(address[at+1:]))
}

// addressOf returns the address of a sender, without the display name.
func addressOf(text string) (address string, ok bool) {
	address = strings.TrimSpace(text)
	_, rest, named := strings.Cut(address, "<")
	if !named {
		return address, true
	}
	return strings.CutSuffix(rest, ">")
}

// templateName has the form of the identifiers of a Domain Connect template, which are parts of URLs.
var templateName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)

// checkDomainConnect checks the settings of Domain Connect, also while domain_connect_provider is empty.
func (l *loader) checkDomainConnect() {
	c := &l.config
	for _, s := range [][2]string{{"domain_connect_provider", c.DomainConnectProvider},
		{"domain_connect_key_domain", c.DomainConnectKeyDomain}} {
		if s[1] != "" && (!templateName.MatchString(s[1]) || !domain.MatchString(hostName(s[1]))) {
			l.wrong(s[0], "%q is not a domain; write one such as example.com", s[1])
		}
	}
	if !templateName.MatchString(c.DomainConnectService) {
		l.wrong("domain_connect_service", "%q must have letters, digits, hyphens and dots only", c.DomainConnectService)
	}
}
