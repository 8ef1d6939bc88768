package bimi

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/cryptobyte"
	casn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// CertificateMax is the maximum size of a file with a mark certificate and its chain, in bytes.
const CertificateMax = 256 << 10

const (
	chainMax   = 10                  // certificates in a file
	imagesMax  = 16                  // images in a logotype extension
	expiresIn  = 30 * 24 * time.Hour // CheckCertificate warns if a certificate expires within this time
	dateFormat = "2 January 2006"
)

var (
	markUsage = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 31}
	logotype  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 12}
)

// Certificate says what CheckCertificate expects of a certificate.
type Certificate struct {
	Domain, Selector string
	Image            []byte         // the unpacked image at l=; nil if it is not known
	Roots            *x509.CertPool // of the mark authorities; nil if the chain is not checked
	Now              time.Time
}

// CheckCertificate returns the problems of a file with a mark certificate and its chain. It also returns a warning if
// the certificate expires within 30 days.
func CheckCertificate(data []byte, want Certificate) (problems []string, expires string) {
	if len(data) > CertificateMax {
		return []string{fmt.Sprintf("The file has more than %d bytes.", CertificateMax)}, ""
	}
	chain, err := parseChain(data)
	if err != nil {
		return []string{"The file has no valid certificate: " + err.Error() + "."}, ""
	}
	leaf := chain[0]
	problem := func(text string) { problems = append(problems, text) }
	if !slices.ContainsFunc(leaf.UnknownExtKeyUsage, markUsage.Equal) {
		problem("The certificate is not a mark certificate: it lacks the extended key usage " + markUsage.String() + ".")
	}
	if !covers(leaf.DNSNames, want.Domain, want.Selector) {
		problem("The certificate is for " + strings.Join(leaf.DNSNames[:min(len(leaf.DNSNames), 5)], ", ") + ", not for " +
			want.Domain + ".")
	}
	switch {
	case want.Now.After(leaf.NotAfter):
		problem("The certificate expired on " + leaf.NotAfter.UTC().Format(dateFormat) + ".")
	case want.Now.Before(leaf.NotBefore):
		problem("The certificate is not valid before " + leaf.NotBefore.UTC().Format(dateFormat) + ".")
	case want.Now.After(leaf.NotAfter.Add(-expiresIn)):
		expires = "The certificate expires on " + leaf.NotAfter.UTC().Format(dateFormat) + "."
	}
	if want.Roots != nil {
		between := x509.NewCertPool()
		for _, c := range chain[1:] {
			between.AddCert(c)
		}
		// The chain is verified at a time at which the certificate is valid, because an expired certificate is reported
		// above.
		_, err := leaf.Verify(x509.VerifyOptions{Roots: want.Roots, Intermediates: between,
			CurrentTime: leaf.NotAfter.Add(-time.Second), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			problem("The certificate does not lead to a known mark authority; the file must contain the whole chain.")
		}
	}
	images, err := logos(leaf)
	switch {
	case err != nil || len(images) == 0:
		problem("The certificate contains no image (logotype extension of RFC 9399).")
	case want.Image != nil && !slices.ContainsFunc(images, func(l logo) bool { return l.shows(want.Image) }):
		problem("The image in the certificate differs from the one at l=.")
	}
	return problems, expires
}

// parseChain reads the certificates of a PEM file. The first one is the mark certificate.
func parseChain(data []byte) (chain []*x509.Certificate, err error) {
	for len(chain) < chainMax {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read", len(chain)+1)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("it contains no certificate in the PEM format")
	}
	return chain, nil
}

// covers reports whether one of the names of a certificate is the domain, a domain above it, or the name of its BIMI
// record.
func covers(names []string, domain, selector string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		name = strings.ToLower(name)
		return name == domain || name == selector+"._bimi."+domain ||
			strings.Contains(name, ".") && strings.HasSuffix(domain, "."+name)
	})
}

// logo is an image in a logotype extension.
type logo struct {
	data   []byte   // from the first data URL, not unpacked; nil if there is none
	hashes [][]byte // SHA-256
}

// shows reports whether the logo is the given image, which must be unpacked.
func (l *logo) shows(image []byte) bool {
	if l.data != nil {
		if plain, err := Unpack(l.data); err == nil {
			return bytes.Equal(bytes.TrimSpace(plain), bytes.TrimSpace(image))
		}
	}
	sum := sha256.Sum256(image)
	return slices.ContainsFunc(l.hashes, func(h []byte) bool { return bytes.Equal(h, sum[:]) })
}

var sha256OID = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}

// logos returns the images of the subject in the logotype extension of a certificate (RFC 9399 section 4.1).
func logos(c *x509.Certificate) (all []logo, err error) {
	i := slices.IndexFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(logotype) })
	if i < 0 {
		return nil, nil
	}
	fault := fmt.Errorf("the logotype extension cannot be read")
	extension := cryptobyte.String(c.Extensions[i].Value)
	var list, subject, direct, images cryptobyte.String
	if !extension.ReadASN1(&list, casn1.SEQUENCE) {
		return nil, fault
	}
	for !list.Empty() {
		var value cryptobyte.String
		var tag casn1.Tag
		if !list.ReadAnyASN1(&value, &tag) {
			return nil, fault
		}
		if tag == casn1.Tag(2).Constructed().ContextSpecific() { // subjectLogo
			subject = value
		}
	}
	if !subject.ReadASN1(&direct, casn1.Tag(0).Constructed().ContextSpecific()) ||
		!direct.ReadASN1(&images, casn1.SEQUENCE) {
		return nil, fault
	}
	for !images.Empty() && len(all) < imagesMax {
		var image, details cryptobyte.String
		if !images.ReadASN1(&image, casn1.SEQUENCE) || !image.ReadASN1(&details, casn1.SEQUENCE) {
			return nil, fault
		}
		l, ok := readLogo(details)
		if !ok {
			return nil, fault
		}
		all = append(all, l)
	}
	return all, nil
}

// readLogo reads LogotypeDetails.
func readLogo(details cryptobyte.String) (l logo, ok bool) {
	var media, hashes, places cryptobyte.String
	if !details.ReadASN1(&media, casn1.IA5String) || !details.ReadASN1(&hashes, casn1.SEQUENCE) ||
		!details.ReadASN1(&places, casn1.SEQUENCE) {
		return l, false
	}
	for !hashes.Empty() {
		var pair, algorithm cryptobyte.String
		var oid asn1.ObjectIdentifier
		var value []byte
		if !hashes.ReadASN1(&pair, casn1.SEQUENCE) || !pair.ReadASN1(&algorithm, casn1.SEQUENCE) ||
			!algorithm.ReadASN1ObjectIdentifier(&oid) || !pair.ReadASN1Bytes(&value, casn1.OCTET_STRING) {
			return l, false
		}
		if oid.Equal(sha256OID) {
			l.hashes = append(l.hashes, value)
		}
	}
	for !places.Empty() {
		var place cryptobyte.String
		if !places.ReadASN1(&place, casn1.IA5String) {
			return l, false
		}
		if _, encoded, found := strings.Cut(string(place), ";base64,"); found && strings.HasPrefix(string(place), "data:") {
			if data, err := base64.StdEncoding.DecodeString(encoded); err == nil && l.data == nil {
				l.data = data
			}
		}
	}
	return l, true
}
