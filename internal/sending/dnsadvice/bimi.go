package dnsadvice

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/mail/bimi"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// bimiSelector is the selector that receivers use for mail without a field BIMI-Selector.
const bimiSelector = "default"

// BIMI checks the BIMI records of domains.
type BIMI struct {
	DNS   resolve.Resolver
	Guard *netguard.Guard
	Roots *x509.CertPool // of the mark authorities; nil if chains are not checked
}

// Check returns the problems of the BIMI record of a domain, its image, its certificate and its DMARC policy. The
// result is empty if neither the domain nor its organizational domain has a record. The fetches count against the
// limits of the team.
func (b *BIMI) Check(ctx context.Context, teamID, domain string) []Problem {
	name, texts := b.find(ctx, domain)
	c := &bimiCheck{BIMI: b, team: teamID, domain: domain, name: name}
	switch {
	case len(texts) == 0:
		return nil
	case len(texts) > 1:
		c.add("bimi_record", Error, shorten(texts...), "The name has several BIMI records, and receivers then use none of them.",
			"Keep one of them.")
		return c.problems
	}
	c.text = texts[0]
	r, problems, _ := bimi.ParseRecord(c.text)
	for _, p := range problems {
		c.add("bimi_record", Error, shorten(c.text), p, "Correct the record.")
	}
	if len(problems) > 0 || r.Image == "" {
		return c.problems // a record without an image declines to show one
	}
	if d, err := dmarc.NewWalker(b.DNS.TXT).Discover(ctx, registrable.Domain(domain)); err == nil {
		for _, p := range bimi.CheckPolicy(&d) {
			c.add("bimi_policy", Error, d.Text, p, "Change the policy once all your mail passes DMARC.")
		}
	}
	c.files(ctx, r)
	return c.problems
}

// find returns the BIMI records of a domain, or else those of its organizational domain.
func (b *BIMI) find(ctx context.Context, domain string) (name string, texts []string) {
	for _, d := range []string{domain, registrable.Domain(domain)} {
		name = bimiSelector + "._bimi." + d
		all, err := b.DNS.TXT(ctx, name)
		if texts = records(all, "v=BIMI1"); err == nil && len(texts) > 0 {
			return name, texts
		}
	}
	return name, nil
}

// bimiCheck is one run of Check.
type bimiCheck struct {
	*BIMI
	team, domain, name, text string
	problems                 []Problem
}

func (c *bimiCheck) add(code string, s Severity, found, what, do string) {
	c.problems = append(c.problems, Problem{Code: code, Severity: s, Name: c.name, Type: "TXT", Found: found, What: what, Do: do})
}

// files fetches and checks the image and the certificate.
func (c *bimiCheck) files(ctx context.Context, r bimi.Record) {
	var packed, chain []byte
	var imageErr, chainErr error
	var both sync.WaitGroup
	both.Go(func() { packed, imageErr = c.fetch(ctx, r.Image, bimi.ImageMax) })
	if r.Certificate != "" {
		both.Go(func() { chain, chainErr = c.fetch(ctx, r.Certificate, bimi.CertificateMax) })
	}
	both.Wait()
	image, ok := c.image(r.Image, packed, imageErr)
	if r.Certificate == "" {
		c.add("bimi_certificate_missing", Note, shorten(c.text), "The record names no mark certificate (the tag a), without which "+
			"Gmail and Apple Mail show no image.", "Nothing is wrong; get a certificate of a mark authority if you want them to.")
		return
	}
	if chainErr != nil {
		c.add("bimi_unreachable", Warning, r.Certificate, "The certificate cannot be fetched: "+reason(chainErr)+".",
			"Publish it at this URL over HTTPS.")
		return
	}
	want := bimi.Certificate{Domain: c.domain, Selector: bimiSelector, Roots: c.Roots, Now: time.Now()}
	if ok {
		want.Image = image
	}
	problems, expires := bimi.CheckCertificate(chain, want)
	for _, p := range problems {
		c.add("bimi_certificate", Error, r.Certificate, p, "Replace the certificate.")
	}
	if expires != "" {
		c.add("bimi_certificate_expires", Warning, r.Certificate, expires, "Renew the certificate before then.")
	}
}

// image checks a fetched image, and returns it without its compression.
func (c *bimiCheck) image(url string, packed []byte, err error) (image []byte, ok bool) {
	if err != nil {
		c.add("bimi_unreachable", Warning, url, "The image cannot be fetched: "+reason(err)+".",
			"Publish it at this URL over HTTPS, with at most 32 KB.")
		return nil, false
	}
	if image, err = bimi.Unpack(packed); err != nil {
		c.add("bimi_image", Error, url, "The image cannot be used: "+err.Error()+".", "Export it as SVG Tiny PS with at most 32 KB.")
		return nil, false
	}
	for _, p := range bimi.CheckImage(image) {
		c.add("bimi_image", Error, url, p, "Export the image in the profile SVG Tiny PS.")
	}
	return image, true
}

// fetch downloads a file. It fails if the file has more than most bytes.
func (c *bimiCheck) fetch(ctx context.Context, url string, most int64) ([]byte, error) {
	f, err := c.Guard.Fetch(ctx, c.team, url, most)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// reason returns the reason of a failed fetch for the domain's owner, without internal details.
func reason(err error) string {
	var status *netguard.StatusError
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("the server answers with the status %d", status.Code)
	case errors.Is(err, netguard.ErrTooLarge):
		return "it is too large"
	case errors.Is(err, netguard.ErrRefused):
		return "its address is not public"
	case errors.Is(err, netguard.ErrSlow), errors.Is(err, context.DeadlineExceeded):
		return "the server is too slow"
	}
	return "the server cannot be reached over HTTPS"
}
