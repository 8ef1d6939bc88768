package arc

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// Verify verifies the ARC chain of a message. It reads the header, and the body only if the structure of the chain is
// sound.
func Verify(ctx context.Context, lookup LookupTXT, msg io.Reader) Chain {
	r := bufio.NewReaderSize(msg, 4096)
	header, err := readHeader(r)
	if err != nil {
		return failed(0, err)
	}
	c := collect(header)
	if c.State != Pass {
		return c
	}
	v := &verifier{ctx: ctx, lookup: lookup, keys: map[string]keyResult{}}
	n := len(c.Sets)
	if err := v.message(header, c.fields[n-1][signature], r); err != nil {
		return c.failed(n, fmt.Errorf("ARC-Message-Signature: %w", err))
	}
	for i := n; i >= 1; i-- {
		if err := v.seal(c.fields[:i]); err != nil {
			return c.failed(i, fmt.Errorf("ARC-Seal: %w", err))
		}
	}
	return c
}

func failed(instance int, err error) Chain {
	return Chain{State: Fail, Reason: err.Error(), Instance: instance}
}

// failed returns the chain with the state that an error causes.
func (c Chain) failed(instance int, err error) Chain {
	c.State, c.Reason, c.Instance = Fail, err.Error(), instance
	if errors.Is(err, resolve.ErrTemporary) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		c.State = TempError
	}
	return c
}

// collect finds the sets and checks their structure (RFC 8617 section 5.2, steps 1 to 3). The state is Pass if the
// structure is sound.
func collect(header []field) (c Chain) {
	found := map[int]*[3][]byte{}
	var sets [MaxSets + 1]Set
	var problem error
	at := 0
	for _, f := range header {
		k := slices.IndexFunc(kinds[:], func(name string) bool { return strings.EqualFold(f.name, name) })
		if k < 0 {
			continue
		}
		c.State = Pass
		n, text, err := instanceOf(kind(k), f.value())
		if len(f.raw) > maxField {
			problem = fmt.Errorf("a field %s is longer than %d KiB", kinds[k], maxField>>10)
			if err == nil { // the next seal must not have the same instance
				at, c.last = n, max(c.last, n)
			}
			continue
		}
		if err != nil {
			problem = fmt.Errorf("%s: %w", kinds[k], err)
			continue
		}
		if found[n] == nil {
			found[n] = new([3][]byte)
		}
		if found[n][k] != nil {
			problem, at = fmt.Errorf("the set has two fields %s", kinds[k]), n
		}
		found[n][k], c.last = f.raw, max(c.last, n)
		if kind(k) == results {
			sets[n].Results = text
		}
	}
	if c.State == "" {
		return Chain{State: None}
	}
	if last := found[c.last]; last != nil && last[seal] != nil {
		list, err := parseTags(field{raw: last[seal]}.value())
		c.ended = err == nil && list["cv"] == "fail"
	}
	c.ended = c.ended || c.last == MaxSets
	if problem != nil {
		return c.failed(at, problem)
	}
	for n := 1; n <= c.last; n++ {
		if found[n] == nil {
			return c.failed(n, errors.New("the set is missing"))
		}
		for k, raw := range found[n] {
			if raw == nil {
				return c.failed(n, fmt.Errorf("the set has no field %s", kinds[k]))
			}
		}
		list, err := parseTags(field{raw: found[n][seal]}.value())
		if err != nil {
			return c.failed(n, err)
		}
		sets[n].Instance, sets[n].Sealer = n, strings.ToLower(list["d"])
		c.Sets, c.fields = append(c.Sets, sets[n]), append(c.fields, *found[n])
		want := string(Pass)
		if n == 1 {
			want = string(None)
		}
		if list["cv"] != want {
			return c.failed(n, fmt.Errorf("the seal says cv=%.20s and must say cv=%s", list["cv"], want))
		}
	}
	return c
}

// verifier verifies the signatures of one chain. It looks up each key once.
type verifier struct {
	ctx    context.Context
	lookup LookupTXT
	keys   map[string]keyResult
}

type keyResult struct {
	key *rsa.PublicKey
	err error
}

// message verifies an ARC-Message-Signature, and reads the body.
func (v *verifier) message(header []field, raw []byte, body io.Reader) error {
	list, err := parseTags(field{raw: raw}.value())
	if err != nil {
		return err
	}
	if err := list.need("a", "b", "bh", "d", "h", "s"); err != nil {
		return err
	}
	if _, ok := list["l"]; ok {
		return errors.New("it covers only a part of the body (tag l)")
	}
	relaxedHeader, relaxedBody, err := canonicalizations(list["c"])
	if err != nil {
		return err
	}
	var names []string
	for name := range strings.SplitSeq(list["h"], ":") {
		names = append(names, strings.ToLower(strings.Trim(name, space)))
	}
	switch {
	case slices.Contains(names, "arc-seal"):
		return errors.New("it covers ARC-Seal, which it must not")
	case !slices.Contains(names, "from"):
		return errors.New("it does not cover From")
	}
	want, err := list.base64("bh")
	if err != nil {
		return err
	}
	sum, err := hashBody(v.ctx, body, relaxedBody)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	if !bytes.Equal(sum, want) {
		return errors.New("the body was changed")
	}
	h := sha256.New()
	left := map[string][]field{}
	for _, f := range header {
		left[f.name] = append(left[f.name], f)
	}
	for _, name := range names {
		if all := left[name]; len(all) > 0 { // a repeated name covers the fields from the bottom up
			h.Write(appendField(nil, all[len(all)-1].raw, relaxedHeader))
			left[name] = all[:len(all)-1]
		}
	}
	own := appendField(nil, withoutSignature(raw), relaxedHeader)
	h.Write(own[:len(own)-len("\r\n")])
	return v.check(list, h.Sum(nil))
}

func canonicalizations(c string) (header, body bool, err error) {
	first, second, _ := strings.Cut(c, "/")
	for i, word := range []string{first, second} {
		switch strings.ToLower(word) {
		case "", "simple":
		case "relaxed":
			header, body = header || i == 0, body || i == 1
		default:
			return false, false, fmt.Errorf("the canonicalization %.20q is unknown", c)
		}
	}
	return header, body, nil
}

// seal verifies the ARC-Seal of the last of the given sets.
func (v *verifier) seal(sets [][3][]byte) error {
	raw := sets[len(sets)-1][seal]
	list, err := parseTags(field{raw: raw}.value())
	if err != nil {
		return err
	}
	if err := list.need("a", "b", "d", "s"); err != nil {
		return err
	}
	if _, ok := list["h"]; ok {
		return errors.New("it has a tag h, which it must not have")
	}
	return v.check(list, sealed(sets, withoutSignature(raw)))
}

// sealed returns the digest that the last seal signs: all fields of the sets, the last one without its signature.
func sealed(sets [][3][]byte, last []byte) []byte {
	h := sha256.New()
	for i, set := range sets {
		for k, raw := range set {
			if i == len(sets)-1 && kind(k) == seal {
				break
			}
			h.Write(appendField(nil, raw, true))
		}
	}
	own := appendField(nil, last, true)
	h.Write(own[:len(own)-len("\r\n")])
	return h.Sum(nil)
}

// check verifies a signature of a digest with the key that the tags name.
func (v *verifier) check(list tags, digest []byte) error {
	if a := strings.ToLower(list["a"]); a != "rsa-sha256" {
		return fmt.Errorf("the algorithm %.20q is not supported", list["a"])
	}
	data, err := list.base64("b")
	if err != nil {
		return err
	}
	name := strings.ToLower(list["s"] + "._domainkey." + list["d"])
	k, ok := v.keys[name]
	if !ok {
		k.key, k.err = v.key(name)
		v.keys[name] = k
	}
	if k.err != nil {
		return k.err
	}
	if err := rsa.VerifyPKCS1v15(k.key, crypto.SHA256, digest, data); err != nil {
		return errors.New("the signature does not match")
	}
	return nil
}

// key looks up a public key.
func (v *verifier) key(name string) (*rsa.PublicKey, error) {
	texts, err := v.lookup(v.ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up the key %.100q: %w", name, err)
	}
	if len(texts) != 1 {
		return nil, fmt.Errorf("there are %d keys at %.100q", len(texts), name)
	}
	if len(texts[0]) > maxKeyRecord {
		return nil, fmt.Errorf("the key record is longer than %d bytes", maxKeyRecord)
	}
	list, err := parseTags([]byte(texts[0]))
	if err != nil {
		return nil, fmt.Errorf("the key record: %w", err)
	}
	hashes := strings.FieldsFunc(list["h"], func(r rune) bool { return strings.ContainsRune(": \t", r) })
	services := strings.FieldsFunc(list["s"], func(r rune) bool { return strings.ContainsRune(": \t", r) })
	version, hasVersion := list["v"]
	switch {
	case hasVersion && version != "DKIM1":
		return nil, errors.New("the key record has another version than DKIM1")
	case list["k"] != "" && !strings.EqualFold(list["k"], "rsa"):
		return nil, fmt.Errorf("the key has the type %.20q instead of RSA", list["k"])
	case len(hashes) > 0 && !slices.Contains(hashes, "sha256"):
		return nil, errors.New("the key is not for SHA-256")
	case len(services) > 0 && !slices.Contains(services, "*") && !slices.Contains(services, "email"):
		return nil, errors.New("the key is not for email")
	case list["p"] == "":
		return nil, errors.New("the key was revoked")
	}
	return parseKey(list["p"])
}

// parseKey decodes an RSA key in one of the two forms that are in use.
func parseKey(text string) (*rsa.PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, errors.New("the key is not base64")
	}
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		public, err = x509.ParsePKCS1PublicKey(der)
	}
	key, ok := public.(*rsa.PublicKey)
	if err != nil || !ok {
		return nil, errors.New("the key is not an RSA key")
	}
	if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("the key has %d bits; %d to %d are allowed", bits, minRSABits, maxRSABits)
	}
	return key, nil
}
