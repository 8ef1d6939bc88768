package sendgrid

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
)

// contactFile is a CSV file with contacts, as Marketing Campaigns export it: the first line names the columns.
type contactFile struct {
	name string

	file   *os.File // nil until the first page is read
	row    *rowLimit
	rows   *csv.Reader
	header []string
	at     int    // number of rows that were read
	sum    string // checksum of the file, or "" if it can be read only once
	notes  []string
}

// Limits of a file. Without them, a file that is no list of contacts could fill the memory.
const (
	maxColumns = 500
	maxRow     = 4 << 20 // bytes, approximately
)

// rowLimit is a reader that fails if a row is too long. The caller sets left before each row.
type rowLimit struct {
	r    io.Reader
	left int
}

func (l *rowLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("a row is longer than %d MB; is a quotation mark missing?", maxRow>>20)
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}

// leftOut are columns that SendGrid writes for itself.
var leftOut = []string{"contact_id", "created_at", "updated_at", "phone_number_id", "external_id", "anonymous_id"}

// page reads the rows after a place, whose Last is the checksum of the file. If the file has changed since, it reads
// the first rows.
func (f *contactFile) page(p *importfrom.Page, at fetch.Place) error {
	if f.file == nil || f.at != at.At {
		if err := f.open(); err != nil {
			return err
		}
		if at.At > 0 && (f.sum == "" || f.sum != at.Last) {
			at.At, at.Again = 0, at.Again+1
			p.Notes = append(p.Notes, "The file of contacts has changed since the import began, and was read again from its "+
				"beginning. The report counts its rows again.")
		}
		for f.at < at.At {
			if _, err := f.read(); err != nil {
				return fmt.Errorf("--contacts: the file changed while it was read: %w", err)
			}
		}
		p.Notes = append(p.Notes, f.notes...)
	}
	for range perPage {
		row, err := f.read()
		if errors.Is(err, io.EOF) {
			return errors.Join(f.file.Close(), f.forget())
		}
		if err != nil {
			return err
		}
		p.Contacts = append(p.Contacts, f.contact(row))
	}
	at.At, at.Last = f.at, f.sum
	p.Next = at.Cursor()
	return nil
}

func (f *contactFile) forget() error {
	f.file = nil
	return nil
}

// open opens the file and reads the names of its columns.
func (f *contactFile) open() error {
	if f.file != nil {
		f.file.Close()
	}
	file, err := os.Open(f.name)
	if err != nil {
		return fmt.Errorf("--contacts: %w", err)
	}
	f.file, f.row, f.at = file, &rowLimit{file, maxRow}, 0
	if f.sum, err = checksum(file); err != nil {
		return fmt.Errorf("--contacts: %w", err)
	}
	f.rows = csv.NewReader(f.row)
	f.rows.ReuseRecord = true
	header, err := f.rows.Read()
	if err != nil {
		return fmt.Errorf("--contacts: read the names of the columns: %w", err)
	}
	if len(header) > maxColumns {
		return fmt.Errorf("--contacts: %s has %d columns; the limit is %d", f.name, len(header), maxColumns)
	}
	f.header, f.notes = nil, nil
	for i, name := range header {
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		name = strings.ToLower(strings.TrimSpace(name))
		free := name // a repeated column keeps its values in a property of its own
		for n := 2; slices.Contains(f.header, free); n++ {
			free = fmt.Sprintf("%s %d", name, n)
		}
		if free != name {
			f.notes = append(f.notes, fmt.Sprintf("The file of contacts has the column %q more than once; the values of a later "+
				"one are those of %q.", name, free))
		}
		f.header = append(f.header, free)
	}
	if !slices.Contains(f.header, "email") {
		return fmt.Errorf("--contacts: %s has no column EMAIL: export the contacts as CSV", f.name)
	}
	return nil
}

// checksum returns the checksum of a file, and goes back to its beginning. It returns "" for a file that can be read
// only once, such as a pipe.
func checksum(file *os.File) (string, error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	_, err = file.Seek(0, io.SeekStart)
	return hex.EncodeToString(sum.Sum(nil)[:16]), err
}

func (f *contactFile) read() ([]string, error) {
	f.row.left = maxRow
	row, err := f.rows.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--contacts: %w", err)
	}
	if err == nil {
		f.at++
	}
	return row, err
}

func (f *contactFile) contact(row []string) (c importfrom.Contact) {
	for i, text := range row {
		name := f.header[i]
		switch {
		case text == "" || slices.Contains(leftOut, name):
		case name == "email":
			c.Address = strings.Clone(text)
		case name == "first_name":
			c.FirstName = strings.Clone(text)
		case name == "last_name":
			c.LastName = strings.Clone(text)
		default:
			if c.Values == nil {
				c.Values = map[string]scalar.Value{}
			}
			c.Values[name] = scalar.OfText(strings.Clone(text))
		}
	}
	return c
}
