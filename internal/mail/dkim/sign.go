package dkim

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Errors that Sign returns for messages that cannot be signed.
var (
	ErrNoFrom = errors.New("message has no From field, so it cannot be signed") // required by RFC 6376 section 5.4
	// White space at the start of the message would be read as a continuation of the signature field.
	ErrBadHeader = errors.New("message begins with white space, not with a header field to sign")
)

// Signer holds the domain, the selector and the key for one signature. The public half of Key is published as the TXT
// record of Selector._domainkey.Domain.
type Signer struct {
	// Domain is the value of the d= tag, in lower-case ASCII. Selector is the value of the s= tag.
	Domain, Selector string
	Key              *Key
}

// wrapAt is the maximum length, in bytes, of a line in the h= tag.
const wrapAt = 76

// signedFields are the fields that a signature covers, in the order of its h= tag (RFC 6376 section 5.4.1, RFC 8058
// section 4). Signed fields are those that mail readers show or use for replies, and those that describe the body.
// Return-Path, Received and similar fields belong to the transport, not to the message. Resent- fields are not signed,
// because a program that resends the message adds them.
//
// A sealed field cannot be added to a signed message. Sealed fields are the ones that mail readers show, that assign a
// message to a conversation (In-Reply-To, References), or that say how to decode the body. An added Content-Type, for
// example, could turn plain text into HTML or hide part of the text.
//
// Signed fields that are not sealed are either closed or open. If a closed field occurs in the message, it cannot be
// added again; an open field can always be added. Mailing lists that forward a message unchanged add List- fields,
// which must not break the signature. An added unsubscribe link has no effect, because mail readers follow only links
// that a signature covers (RFC 8058 section 4). Fields that describe the body as a file, or that classify the message,
// do not change the displayed text. A second address for complaints would draw reports that are meant for the first
// one.
var signedFields = []signedField{
	{"From", sealed}, {"Reply-To", sealed}, {"Sender", sealed}, {"To", sealed}, {"Cc", sealed}, {"Subject", sealed},
	{"Date", sealed}, {"Message-ID", sealed}, {"In-Reply-To", sealed}, {"References", sealed},
	{"MIME-Version", sealed}, {"Content-Type", sealed}, {"Content-Transfer-Encoding", sealed},
	{"Content-Disposition", closed}, {"Content-ID", open}, {"Content-Description", open},
	{"List-ID", open}, {"List-Help", open}, {"List-Unsubscribe", closed}, {"List-Unsubscribe-Post", closed},
	{"List-Subscribe", open}, {"List-Post", open}, {"List-Owner", open}, {"List-Archive", open},
	{"Auto-Submitted", open}, {"Feedback-ID", open},
	{"CFBL-Address", closed}, {"CFBL-Feedback-ID", closed},
	// RFC 8460 section 5.3 requires these of the email with a TLS report.
	{"TLS-Report-Domain", closed}, {"TLS-Report-Submitter", closed},
}

// signedField is a field to sign.
type signedField struct {
	name     string
	coverage coverage
}

// coverage says how many times the h= tag lists a field. If the h= tag lists a field once more than it occurs, adding
// another one breaks the signature (RFC 6376 sections 5.4.2 and 8.15).
type coverage int

const (
	open   coverage = iota // the h= tag lists the field as many times as it occurs
	closed                 // the h= tag lists the field once more than it occurs, but only if it occurs
	sealed                 // the h= tag lists the field once more than it occurs, even if it is absent
)

// Sign returns the DKIM-Signature fields for msg, one per signer in the given order. Each signature field is folded and
// ends with CRLF. The caller prepends the signature fields to msg, which must not change afterwards. Lines of msg
// should end with CRLF; a lone LF is signed as the CRLF that it becomes on the wire. If there are no signers, the
// result is empty.
func Sign(msg []byte, now time.Time, signers ...Signer) ([]byte, error) {
	if len(signers) == 0 {
		return nil, nil
	}
	for _, s := range signers {
		if s.Key == nil || !isName(s.Domain) || !isName(s.Selector) {
			return nil, fmt.Errorf("sign for %q with selector %q: a key and valid names are needed", s.Domain, s.Selector)
		}
	}
	c, err := canonicalize(msg)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(signers)*(len(c.names)+len(c.names)/32+768))
	for _, s := range signers {
		start := len(out)
		out = c.appendUnsigned(out, s, now)
		// The DKIM-Signature field is hashed last, with an empty b= tag and without its final CRLF (RFC 6376 section
		// 3.7).
		hashed := appendField(c.header, out[start:])
		digest := sha256.Sum256(hashed[:len(hashed)-len("\r\n")])
		signature, err := s.Key.sign(digest[:])
		if err != nil {
			return nil, fmt.Errorf("sign for %s with selector %s: %w", s.Domain, s.Selector, err)
		}
		out = appendFolded(out, signature)
	}
	return out, nil
}

// canonical holds the canonical form of a message, which is what Sign signs.
type canonical struct {
	// header holds the signed fields in relaxed form, each ending with CRLF. The capacity of header includes space for
	// one DKIM-Signature field.
	header []byte
	// names is the value of the h= tag.
	names string
	// bodyHash is the value of the bh= tag.
	bodyHash string
}

func canonicalize(msg []byte) (canonical, error) {
	if len(msg) > 0 && (msg[0] == ' ' || msg[0] == '\t') {
		return canonical{}, ErrBadHeader
	}
	fields, body := splitHeader(msg)
	var c canonical
	names := make([]byte, 0, 512)
	c.header = make([]byte, 0, 4096)
	for i := range signedFields {
		found := 0
		// If a field is repeated, the last one is signed first (RFC 6376 section 5.4.2).
		for j := len(fields) - 1; j >= 0; j-- {
			if fields[j].signed == i {
				c.header = appendField(c.header, fields[j].raw)
				found++
			}
		}
		if i == 0 && found == 0 {
			return canonical{}, ErrNoFrom
		}
		if c := signedFields[i].coverage; c == sealed || c == closed && found > 0 {
			found++
		}
		for range found {
			names = append(append(names, signedFields[i].name...), ':')
		}
	}
	c.names = strings.TrimSuffix(string(names), ":")
	sum := hashBody(body)
	c.bodyHash = base64.StdEncoding.EncodeToString(sum[:])
	return c, nil
}

// appendUnsigned appends a DKIM-Signature field that ends with an empty b= tag.
func (c *canonical) appendUnsigned(dst []byte, s Signer, now time.Time) []byte {
	dst = append(dst, "DKIM-Signature: v=1; a="...)
	dst = append(dst, s.Key.algorithm...)
	dst = append(dst, "; c=relaxed/relaxed;\r\n d="...)
	dst = append(dst, s.Domain...)
	dst = append(dst, ";\r\n s="...)
	dst = append(dst, s.Selector...)
	dst = append(dst, "; t="...)
	dst = strconv.AppendInt(dst, now.Unix(), 10)
	dst = append(dst, ";\r\n h="...)
	column := len(" h=")
	for rest := c.names; rest != ""; {
		end := strings.IndexByte(rest, ':') + 1
		if end == 0 {
			end = len(rest)
		}
		if column+end >= wrapAt {
			dst = append(dst, "\r\n  "...)
			column = len("  ")
		}
		dst = append(dst, rest[:end]...)
		column += end
		rest = rest[end:]
	}
	dst = append(dst, ";\r\n bh="...)
	dst = append(dst, c.bodyHash...)
	return append(dst, ";\r\n b="...)
}

// appendFolded appends the value of the b= tag and the end of the field. The value may be folded because verifiers
// ignore white space in it.
func appendFolded(dst, signature []byte) []byte {
	const lineBytes = 54 // 72 columns
	for len(signature) > lineBytes {
		dst = base64.StdEncoding.AppendEncode(dst, signature[:lineBytes])
		dst = append(dst, "\r\n  "...)
		signature = signature[lineBytes:]
	}
	dst = base64.StdEncoding.AppendEncode(dst, signature)
	return append(dst, "\r\n"...)
}

// isName reports whether s consists of labels separated by dots. Labels contain only letters, digits, hyphens and
// underscores, so a valid name cannot terminate a tag or a line.
func isName(s string) bool {
	if s == "" || len(s) > 253 || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}
