package authres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"

	"github.com/emersion/go-msgauth/dkim"
)

const (
	// maxSignatures is the maximum number of signatures to verify per message. Verifying a signature takes a DNS
	// look-up, a pass over the body and a public-key operation.
	maxSignatures = 8
	// maxKeyRecord limits the size of a key record in bytes, and thereby the time needed to verify a signature. The
	// record of an 8,192-bit RSA key takes 1,400 bytes.
	maxKeyRecord = 4 << 10
)

// dkim verifies the first eight DKIM signatures in the header. If there are more than eight signatures, the last
// verdict states how many were not verified.
func (e *Evaluator) dkim(ctx context.Context, h header, raw io.ReaderAt, size int64) (
	verdicts []Verdict, signed [][]string) {
	if h.problem != "" {
		return []Verdict{{Result: permerror, Detail: h.problem}}, nil
	}
	if h.signatures == 0 {
		return []Verdict{{Result: none, Detail: "the message is not signed"}}, nil
	}
	message := &untilDone{ctx: ctx, r: h.message(raw, size)}
	verifications, err := dkim.VerifyWithOptions(message, &dkim.VerifyOptions{
		LookupTXT:        func(name string) ([]string, error) { return e.keyRecord(ctx, name) },
		MaxVerifications: maxSignatures,
	})
	if err != nil && !errors.Is(err, dkim.ErrTooManySignatures) {
		return []Verdict{{Result: permerror, Detail: err.Error()}}, nil
	}
	signed = make([][]string, len(verifications))
	verdicts = make([]Verdict, 0, len(verifications)+1)
	for i, v := range verifications {
		verdict := Verdict{Result: pass, Domain: hostName(v.Domain)}
		if v.Err != nil {
			verdict.Result, verdict.Detail = dkimResult(v.Err), strings.TrimPrefix(v.Err.Error(), "dkim: ")
			if message.cut.Load() {
				verdict.Result, verdict.Detail = temperror, outOfTime
			}
		} else if verdict.Domain == "" {
			verdict.Result, verdict.Detail = permerror, "the signing domain is no domain name"
		}
		if verdict.Result == pass {
			signed[i] = strings.Split(strings.ToLower(strings.Join(v.HeaderKeys, ":")), ":")
		}
		if len(h.from) > 1 {
			verdict.Detail = strings.TrimPrefix(verdict.Detail+fmt.Sprintf("; the message has %d From fields", len(h.from)),
				"; ")
		}
		verdicts = append(verdicts, verdict)
	}
	if more := h.signatures - maxSignatures; more > 0 {
		verdicts = append(verdicts, Verdict{Result: neutral, Detail: fmt.Sprintf("%d more signatures were not verified",
			more)})
	}
	return verdicts, signed
}

// message returns a reader of the message in the form that verifiers expect.
func (h header) message(raw io.ReaderAt, size int64) io.Reader {
	return io.MultiReader(io.NewSectionReader(raw, 0, h.end), strings.NewReader(h.ending()),
		io.NewSectionReader(raw, h.body, size-h.body))
}

func dkimResult(err error) string {
	switch {
	case dkim.IsTempFail(err):
		return temperror
	case dkim.IsPermFail(err):
		return permerror
	}
	return fail
}

func (e *Evaluator) keyRecord(ctx context.Context, name string) ([]string, error) {
	records, err := e.dns.LookupTXT(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if len(r) > maxKeyRecord {
			return nil, &net.DNSError{Err: fmt.Sprintf("the record is longer than %d octets", maxKeyRecord), Name: name}
		}
	}
	return records, nil
}

// ending returns the line endings to insert between the header and the body, because the verifier requires an empty
// line there.
func (h header) ending() string {
	if h.closed || h.end == 0 {
		return "\r\n"
	}
	return "\r\n\r\n"
}

// untilDone is a reader that returns io.EOF once ctx is done. untilDone also returns io.EOF in place of read errors,
// because the verifier leaks goroutines when its reader fails.
type untilDone struct {
	ctx context.Context
	r   io.Reader
	cut atomic.Bool
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		u.cut.Store(true)
		return 0, io.EOF
	}
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.cut.Store(true)
		err = io.EOF
	}
	return n, err
}
