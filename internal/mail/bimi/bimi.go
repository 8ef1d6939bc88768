// Package bimi checks what a domain publishes for BIMI (Brand Indicators for Message Identification,
// draft-brand-indicators-for-message-identification). It checks the TXT record, the image in the profile SVG Tiny PS,
// and the mark certificate.
//
// # Invariants
//
//   - The work for an image or a certificate is proportional to its size, and sizes are limited: [ImageMax],
//     [CertificateMax]. Compressed images are unpacked to at most one byte more than the limit.
//   - XML entities and document types are refused. References in an image are not fetched.
//
// # Failures
//
// Each check returns the problems as sentences for the domain's owner. Invalid input leads to such sentences, never to
// a panic.
//
// # Out of scope
//
// The package does no look-ups and fetches nothing. It does not check revocation of certificates.
package bimi

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/mail/dmarc"
)

// ImageMax is the maximum size of an image, unpacked, in bytes. Mailbox providers advise at most 32 KB.
const ImageMax = 32 << 10

const (
	depthMax = 64 // nested elements
	urlMax   = 2048
)

// Record is a BIMI assertion record.
type Record struct {
	Image       string // URL of the image; empty if the domain declines to show one
	Certificate string // URL of the mark certificate; may be empty
}

// ParseRecord parses a TXT record and returns its problems as sentences. ok is false if the record does not begin with
// the version tag of BIMI.
func ParseRecord(text string) (r Record, problems []string, ok bool) {
	version, rest, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(version, "=")
	if strings.TrimSpace(name) != "v" || strings.TrimSpace(value) != "BIMI1" {
		return Record{}, nil, false
	}
	tags := map[string]string{}
	for t := range strings.SplitSeq(rest, ";") {
		n, v, found := strings.Cut(t, "=")
		if n = strings.TrimSpace(n); found && n != "" {
			if _, twice := tags[n]; twice {
				problems = append(problems, "The tag "+strconv.Quote(n)+" occurs twice.")
			}
			tags[n] = strings.TrimSpace(v)
		}
	}
	image, has := tags["l"]
	if !has {
		problems = append(problems, "The record has no tag l with the URL of the image.")
	}
	r = Record{Image: image, Certificate: tags["a"]}
	for _, t := range []struct{ tag, value string }{{"l", r.Image}, {"a", r.Certificate}} {
		u, err := url.Parse(t.value)
		if t.value != "" && (err != nil || u.Scheme != "https" || u.Host == "" || len(t.value) > urlMax) {
			problems = append(problems, "The tag "+t.tag+" must be a URL that begins with https://.")
		}
	}
	return r, problems, true
}

// CheckPolicy returns the problems of a DMARC policy. BIMI demands the policy quarantine or reject, also for
// subdomains, and no test mode.
func CheckPolicy(d *dmarc.Discovery) (problems []string) {
	r := &d.Record
	strict := func(p dmarc.Policy) bool { return p == dmarc.Quarantine || p == dmarc.Reject }
	switch {
	case d.At == "":
		return []string{"There is no DMARC record. BIMI demands one with p=quarantine or p=reject."}
	case !strict(r.P):
		problems = append(problems, "The DMARC record at _dmarc."+d.At+" has no policy of quarantine or reject.")
	case r.SP == dmarc.None:
		problems = append(problems, "The DMARC record at _dmarc."+d.At+" has sp=none.")
	}
	if r.Testing {
		problems = append(problems, "The DMARC record at _dmarc."+d.At+" is in test mode (t=y).")
	}
	return problems
}

var errLarge = fmt.Errorf("the image is larger than %d bytes", ImageMax)

// Unpack returns an image without its compression (.svgz).
func Unpack(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("the compressed image cannot be read: %w", err)
		}
		if data, err = io.ReadAll(io.LimitReader(z, ImageMax+1)); err != nil {
			return nil, fmt.Errorf("the compressed image cannot be read: %w", err)
		}
	}
	if len(data) > ImageMax {
		return nil, errLarge
	}
	return data, nil
}

// forbidden maps the elements that SVG Tiny PS excludes to what they are.
var forbidden = map[string]string{"script": "a script", "handler": "a script", "listener": "a script", "a": "a link",
	"animate": "an animation", "animateColor": "an animation", "animateMotion": "an animation",
	"animateTransform": "an animation", "set": "an animation", "animation": "an animation", "discard": "an animation",
	"image": "a raster image", "feImage": "a raster image", "foreignObject": "foreign content", "video": "a video",
	"audio": "sound", "iframe": "foreign content", "embed": "foreign content", "object": "foreign content"}

const svgSpace = "http://www.w3.org/2000/svg"

// CheckImage checks an unpacked image against the main rules of the profile SVG Tiny PS, and returns the problems. It
// does not know every element of the profile.
func CheckImage(data []byte) (problems []string) {
	if len(data) > ImageMax {
		return []string{fmt.Sprintf("The image has %d bytes, and at most %d are allowed.", len(data), ImageMax)}
	}
	c := &imageCheck{seen: map[string]bool{}}
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.problem("The image is not valid XML: " + strconv.Quote(err.Error()) + ".")
			return c.problems
		}
		if !c.token(token) {
			return c.problems
		}
	}
	switch {
	case len(c.open) > 0 || !c.root:
		c.problem("The image is not a complete SVG document.")
	case !c.title:
		c.problem("The image has no title: add <title> with the name of your company as the first element.")
	}
	return c.problems
}

// imageCheck is the state of CheckImage.
type imageCheck struct {
	problems []string
	seen     map[string]bool
	open     []string // names of the open elements
	root     bool     // whether the root element was seen
	title    bool
}

func (c *imageCheck) problem(text string) {
	if !c.seen[text] {
		c.seen[text] = true
		c.problems = append(c.problems, text)
	}
}

// token checks one token, and returns false if the rest must not be read.
func (c *imageCheck) token(token xml.Token) bool {
	switch t := token.(type) {
	case xml.Directive:
		c.problem("The image has a document type or entities, which are not allowed.")
		return false
	case xml.ProcInst:
		if t.Target != "xml" {
			c.problem("The image has the processing instruction " + strconv.Quote(t.Target) + ", which is not allowed.")
		}
	case xml.StartElement:
		return c.start(t)
	case xml.EndElement:
		if n := len(c.open); n == 0 || c.open[n-1] != qualified(t.Name) {
			c.problem("The image is not valid XML: an element ends that did not begin.")
			return false
		}
		c.open = c.open[:len(c.open)-1]
	case xml.CharData:
		if len(c.open) == 2 && c.open[1] == "title" && len(bytes.TrimSpace(t)) > 0 {
			c.title = true
		}
		if n := len(c.open); n > 0 && strings.TrimPrefix(c.open[n-1], "svg:") == "style" && externalURL.Match(t) {
			c.problem("The image refers to something outside of itself (<style>), which is not allowed.")
		}
	}
	return true
}

func qualified(n xml.Name) string { return strings.TrimPrefix(n.Space+":"+n.Local, ":") }

// start checks an element and its attributes.
func (c *imageCheck) start(t xml.StartElement) bool {
	name := strings.TrimPrefix(qualified(t.Name), "svg:")
	if len(c.open) == 0 {
		if c.root || name != "svg" {
			c.problem("The image must have one element svg that contains all others.")
			return false
		}
		c.root = true
		c.checkRoot(t.Attr)
	}
	if c.open = append(c.open, qualified(t.Name)); len(c.open) > depthMax {
		c.problem(fmt.Sprintf("The image has more than %d nested elements.", depthMax))
		return false
	}
	if what := forbidden[name]; what != "" {
		c.problem("The image contains " + what + " (<" + name + ">), which is not allowed.")
	}
	for _, a := range t.Attr {
		local := strings.ToLower(a.Name.Local)
		switch value := strings.TrimSpace(a.Value); {
		case strings.HasPrefix(local, "on") && a.Name.Space == "":
			c.problem("The image contains a script (the attribute " + strconv.Quote(a.Name.Local) + "), which is not allowed.")
		case local == "href" && !strings.HasPrefix(value, "#"), externalURL.MatchString(value):
			c.problem("The image refers to something outside of itself (" + strconv.Quote(a.Name.Local) + "), which is not allowed.")
		}
	}
	return true
}

// externalURL matches the start of a reference in CSS to something outside the image. CSS ignores the case of its names.
var externalURL = regexp.MustCompile(`(?i)url\(\s*['"]?[^#'"\s]|@import`)

// checkRoot checks the attributes of the element svg.
func (c *imageCheck) checkRoot(attributes []xml.Attr) {
	get := map[string]string{}
	for _, a := range attributes {
		get[qualified(a.Name)] = strings.TrimSpace(a.Value)
	}
	if get["version"] != "1.2" {
		c.problem(`The element svg must have version="1.2".`)
	}
	if get["baseProfile"] != "tiny-ps" {
		c.problem(`The element svg must have baseProfile="tiny-ps".`)
	}
	if get["xmlns"] != svgSpace && get["xmlns:svg"] != svgSpace {
		c.problem(`The element svg must have xmlns="` + svgSpace + `".`)
	}
	for _, name := range []string{"x", "y"} {
		if _, has := get[name]; has {
			c.problem("The element svg must not have the attribute " + name + ".")
		}
	}
	if !isSquare(get["viewBox"], get["width"], get["height"]) {
		c.problem("The image must be square: give the element svg a viewBox with the same width and height.")
	}
}

// isSquare reports whether an image is square. It compares the sides of the view box, or the width and height if there
// is no view box.
func isSquare(box, width, height string) bool {
	if fields := strings.FieldsFunc(box, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' }); box != "" {
		return len(fields) == 4 && sameLength(fields[2], fields[3])
	}
	return sameLength(strings.TrimSuffix(width, "px"), strings.TrimSuffix(height, "px"))
}

func sameLength(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x > 0 && x == y
}
