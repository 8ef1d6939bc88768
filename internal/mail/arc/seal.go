package arc

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
)

// closed and open are the fields that a message signature covers. The signature names each field in closed once more
// than it occurs, so that another one breaks the signature. RFC 8617 section 4.1.2 asks for DKIM-Signature and forbids
// ARC-Seal. Results of earlier checks are not covered, because later hosts may remove them.
var (
	closed = []string{"From", "Reply-To", "Sender", "To", "Cc", "Subject", "Date", "Message-ID", "In-Reply-To",
		"References", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
	open = []string{"DKIM-Signature", "List-ID", "List-Unsubscribe", "List-Unsubscribe-Post", "List-Help",
		"List-Subscribe", "List-Post", "List-Owner", "List-Archive", "Auto-Submitted"}
)

// Seal returns the three fields of the next set, each folded and ended by CRLF, to be written above the message. The
// chain is what Verify returned for the same message. The results are the value for ARC-Authentication-Results, such as
// "mx.example.com; spf=pass …", in one line. The key of the signer must be an RSA key.
func Seal(msg []byte, chain Chain, results string, s dkim.Signer, now time.Time) ([]byte, error) {
	switch {
	case chain.ended:
		return nil, ErrEnded
	case chain.State == TempError:
		return nil, ErrUnverified
	case s.Key == nil || s.Key.Algorithm() != "rsa-sha256" || s.Domain == "" || s.Selector == "":
		return nil, errors.New("seal with ARC: an RSA key, its domain and its selector are needed")
	case strings.ContainsAny(results+s.Domain+s.Selector, "\r\n") || strings.ContainsAny(s.Domain+s.Selector, "; \t"):
		return nil, errors.New("seal with ARC: the results or names would end a field or tag")
	}
	if len(msg) > 0 && (msg[0] == ' ' || msg[0] == '\t') {
		return nil, dkim.ErrBadHeader
	}
	header, err := readHeader(bufio.NewReader(bytes.NewReader(msg)))
	if err != nil {
		return nil, err
	}
	n := chain.last + 1
	var own [3][]byte
	own[0] = fmt.Appendf(nil, "%s: i=%d; %s", kinds[0], n, fold(results))
	if own[signature], err = sign(msg, header, n, s, now); err != nil {
		return nil, err
	}
	verdict, sets := chain.State, append(slices.Clone(chain.fields), own)
	if verdict == Fail {
		// The chain cannot be relied on, so the last seal covers only its own set (RFC 8617 section 5.1.2).
		sets = [][3][]byte{own}
	}
	unsigned := fmt.Appendf(nil, "%s: i=%d; a=rsa-sha256; cv=%s;\r\n d=%s; s=%s;\r\n t=%d; b=", kinds[seal], n, verdict,
		s.Domain, s.Selector, now.Unix())
	if own[seal], err = addSignature(unsigned, sealed(sets, unsigned), s); err != nil {
		return nil, err
	}
	// The newest field is the topmost one, as each host adds its fields above those of earlier hosts.
	return slices.Concat(own[seal], crlf, own[signature], crlf, own[0], crlf), nil
}

var crlf = []byte("\r\n")

// sign returns the ARC-Message-Signature for a message.
func sign(msg []byte, header []field, n int, s dkim.Signer, now time.Time) ([]byte, error) {
	var names []string
	h := sha256.New()
	cover := func(name string, again int) (found int) {
		for _, f := range slices.Backward(header) {
			if strings.EqualFold(f.name, name) {
				h.Write(dkim.AppendRelaxed(nil, f.raw))
				found++
			}
		}
		for range found + again {
			names = append(names, name)
		}
		return found
	}
	for i, name := range closed {
		if found := cover(name, 1); found == 0 && i == 0 {
			return nil, dkim.ErrNoFrom
		}
	}
	for _, name := range open {
		cover(name, 0)
	}
	sum := dkim.HashBody(bodyOf(msg))
	var b strings.Builder
	fmt.Fprintf(&b, "%s: i=%d; a=rsa-sha256; c=relaxed/relaxed;\r\n d=%s; s=%s;\r\n t=%d;\r\n h=", kinds[signature], n,
		s.Domain, s.Selector, now.Unix())
	column := len(" h=")
	for i, name := range names {
		if i > 0 {
			b.WriteByte(':')
			column++
		}
		if column+len(name) > lineMax {
			b.WriteString("\r\n  ")
			column = len("  ")
		}
		b.WriteString(name)
		column += len(name)
	}
	fmt.Fprintf(&b, ";\r\n bh=%s;\r\n b=", base64.StdEncoding.EncodeToString(sum[:]))
	unsigned := []byte(b.String())
	own := dkim.AppendRelaxed(nil, unsigned)
	h.Write(own[:len(own)-len(crlf)])
	return addSignature(unsigned, h.Sum(nil), s)
}

// lineMax is the maximum length of a line of the fields, in bytes, as far as they can be folded.
const lineMax = 76

// addSignature signs a digest and appends the signature, folded, to a field.
func addSignature(unsigned, digest []byte, s dkim.Signer) ([]byte, error) {
	data, err := s.Key.SignDigest(digest)
	if err != nil {
		return nil, fmt.Errorf("seal with ARC for %s with selector %s: %w", s.Domain, s.Selector, err)
	}
	out := slices.Clone(unsigned)
	for chunk := range slices.Chunk(data, 54) { // 72 columns
		out = append(out, "\r\n  "...)
		out = base64.StdEncoding.AppendEncode(out, chunk)
	}
	return out, nil
}

// fold breaks long results after semicolons.
func fold(results string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(results), " "), "; ", ";\r\n ")
}

// bodyOf returns what follows the header's empty line.
func bodyOf(msg []byte) []byte {
	for at := 0; at < len(msg); {
		end := bytes.IndexByte(msg[at:], '\n')
		if end < 0 {
			return nil
		}
		if len(trimEnding(msg[at:at+end+1])) == 0 {
			return msg[at+end+1:]
		}
		at += end + 1
	}
	return nil
}
