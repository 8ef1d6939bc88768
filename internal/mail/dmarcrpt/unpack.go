package dmarcrpt

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding/charmap"
)

// These are the limits of a file. No reporter comes near them.
const (
	maxFile  = 25 << 20  // bytes of the file
	maxXML   = 100 << 20 // bytes of the XML
	maxRatio = 200       // bytes of XML for each byte of the file
	freeXML  = 1 << 20   // bytes of XML that may have any ratio
	maxTag   = 64 << 10  // bytes of a tag, a comment, or the text between two tags
	maxIndex = 256 << 10 // bytes that are read to find the entries of an archive
)

// ErrNoReport means that a file is not a DMARC report: it is no XML, or another XML document.
var ErrNoReport = errors.New("the file is not a DMARC report")

// unpack returns the XML in a file. It looks at the first bytes, because names and media types are often wrong.
func unpack(file io.ReaderAt, size int64, left *ContentLimit) (*meter, error) {
	if size > maxFile {
		return nil, fmt.Errorf("the file has %d bytes, more than %d", size, maxFile)
	}
	magic := make([]byte, 4)
	n, err := file.ReadAt(magic[:min(int64(len(magic)), max(size, 0))], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	var content io.Reader = io.NewSectionReader(file, 0, size)
	switch magic = magic[:n]; {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		if content, err = gzip.NewReader(content); err != nil {
			return nil, fmt.Errorf("unpack the file: %w", err)
		}
	case bytes.HasPrefix(magic, []byte("PK\x03\x04")):
		if content, err = entry(file, size); err != nil {
			return nil, err
		}
	}
	m := &meter{r: bufio.NewReader(content), packed: size, left: left}
	return m, m.begin()
}

// entry returns the only file in a ZIP archive.
func entry(file io.ReaderAt, size int64) (io.Reader, error) {
	index := &budget{file, maxIndex}
	archive, err := zip.NewReader(index, size)
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	index.left = 2 * maxFile // every byte of the entry, and its header
	var found *zip.File
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		if found != nil {
			return nil, errors.New("the archive has several files instead of one")
		}
		found = f
	}
	if found == nil {
		return nil, errors.New("the archive is empty")
	}
	content, err := found.Open()
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return content, nil
}

// budget limits the bytes that are read from a file. Package zip reads the index of an archive into memory.
type budget struct {
	io.ReaderAt
	left int64
}

func (b *budget) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("the index of the archive is too large")
	}
	return b.ReaderAt.ReadAt(p, off)
}

// meter reads XML byte by byte and enforces the limits. The XML decoder reads an io.ByteReader without a buffer of its
// own, so tag counts the bytes of the current tag or text exactly.
type meter struct {
	r          *bufio.Reader
	packed     int64
	total, tag int64
	left       *ContentLimit
}

// begin skips a byte order mark and white space before the XML.
func (m *meter) begin() error {
	if mark, _ := m.r.Peek(3); string(mark) == "\ufeff" {
		m.r.Discard(3)
	}
	for {
		b, err := m.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: it is empty", ErrNoReport)
		case err != nil:
			return fmt.Errorf("unpack the file: %w", err)
		case isSpace(b):
			if m.total++; m.total > maxTag {
				return fmt.Errorf("%w: it begins with white space", ErrNoReport)
			}
			m.left.Bytes--
			continue
		case b != '<':
			return fmt.Errorf("%w: it is not XML, nor packed by gzip or ZIP", ErrNoReport)
		}
		return m.r.UnreadByte()
	}
}

// end reads what follows the XML, which verifies the checksum of packed files. Some reporters add white space or zeros.
func (m *meter) end() error {
	for {
		m.tag = 0
		b, err := m.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case b != 0 && !isSpace(b):
			return errors.New("the report continues after its end")
		}
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// ReadByte implements io.ByteReader.
func (m *meter) ReadByte() (byte, error) {
	b, err := m.r.ReadByte()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("unpack the file: %w", err)
		}
		return 0, err
	}
	m.total++
	m.tag++
	m.left.Bytes--
	switch {
	case m.total > maxXML:
		return 0, fmt.Errorf("the XML has more than %d bytes", maxXML)
	case m.total > freeXML && m.total > maxRatio*m.packed:
		return 0, fmt.Errorf("the file unpacks to more than %d times its size", maxRatio)
	case m.left.Bytes < 0:
		return 0, ErrBudget
	case m.tag > maxTag:
		return 0, fmt.Errorf("a tag or a text has more than %d bytes", maxTag)
	}
	return b, nil
}

// Read implements io.Reader, which the XML decoder demands.
func (m *meter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b, err := m.ReadByte()
	if err != nil {
		return 0, err
	}
	p[0] = b
	return 1, nil
}

// charset returns a reader that converts the XML from the charset of its declaration to UTF-8. Text that claims to be
// ISO-8859-1 is often Windows-1252, which has more characters and is otherwise the same.
func (m *meter) charset(name string, _ io.Reader) (io.Reader, error) {
	switch strings.ToLower(name) {
	case "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252", "cp1252":
		return &western{m: m}, nil
	}
	return nil, fmt.Errorf("the charset %.40q is not supported", name)
}

// western converts Windows-1252 to UTF-8, byte by byte.
type western struct {
	m       *meter
	pending []byte
}

// ReadByte implements io.ByteReader.
func (w *western) ReadByte() (byte, error) {
	if len(w.pending) == 0 {
		b, err := w.m.ReadByte()
		if err != nil || b < 0x80 {
			return b, err
		}
		w.pending = append(w.pending, string(charmap.Windows1252.DecodeByte(b))...)
	}
	b := w.pending[0]
	if w.pending = w.pending[1:]; len(w.pending) == 0 {
		w.pending = nil
	}
	return b, nil
}

// Read implements io.Reader.
func (w *western) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b, err := w.ReadByte()
	if err != nil {
		return 0, err
	}
	p[0] = b
	return 1, nil
}
