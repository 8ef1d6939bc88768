package sendgrid

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
)

// contactFile is a CSV file with contacts, as Marketing Campaigns export it: the first line names the columns.
type contactFile struct {
	name string

	file   *os.File // nil until the first page is read
	row    *rowLimit
	rows   *csv.Reader
	header []string
	at     int // number of rows that were read
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

// page reads the rows after the given number of rows, and returns the number for the next page, or 0 at the end.
func (f *contactFile) page(p *importfrom.Page, at int) (next int, err error) {
	if f.file == nil || f.at != at {
		if err := f.open(at); err != nil {
			return 0, err
		}
	}
	for range perPage {
		row, err := f.read()
		if errors.Is(err, io.EOF) {
			return 0, errors.Join(f.file.Close(), f.forget())
		}
		if err != nil {
			return 0, err
		}
		p.Contacts = append(p.Contacts, f.contact(row))
	}
	return f.at, nil
}

func (f *contactFile) forget() error {
	f.file = nil
	return nil
}

// open opens the file and skips rows.
func (f *contactFile) open(skip int) error {
	if f.file != nil {
		f.file.Close()
	}
	file, err := os.Open(f.name)
	if err != nil {
		return fmt.Errorf("--contacts: %w", err)
	}
	f.file, f.row, f.at = file, &rowLimit{file, maxRow}, 0
	f.rows = csv.NewReader(f.row)
	f.rows.ReuseRecord = true
	header, err := f.rows.Read()
	if err != nil {
		return fmt.Errorf("--contacts: read the names of the columns: %w", err)
	}
	if len(header) > maxColumns {
		return fmt.Errorf("--contacts: %s has %d columns; the limit is %d", f.name, len(header), maxColumns)
	}
	f.header = nil
	for i, name := range header {
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		f.header = append(f.header, strings.ToLower(strings.TrimSpace(name)))
	}
	if !slices.Contains(f.header, "email") {
		return fmt.Errorf("--contacts: %s has no column EMAIL: export the contacts as CSV", f.name)
	}
	for f.at < skip {
		if _, err := f.read(); err != nil {
			return fmt.Errorf("--contacts: the file is shorter than before: %w", err)
		}
	}
	return nil
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
		case convert.PropertyKey(name) != "":
			if c.Values == nil {
				c.Values = map[string]scalar.Value{}
			}
			c.Values[convert.PropertyKey(name)] = scalar.OfText(strings.Clone(text))
		}
	}
	return c
}
