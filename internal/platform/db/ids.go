package db

import (
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// ID is the id of a row as an argument of a statement, and (*ID)(&s) as a destination of Scan: a UUID in its canonical
// text form, or "" for none. Columns hold an id in 16 bytes (the type uuid on PostgreSQL, BLOB on SQLite), and NULL for
// none. Bytes sort as the text does. Columns of a key cannot hold NULL; they hold [NoID] for none, which Scan reads as
// "".
//
// An id that is not a UUID fails when the statement is run. Callers check ids that come from requests with id.Valid,
// because no row can have an invalid id.
//
// [Tx.InsertRows], ANY and ALL take lists as []ID.
type ID string

// NoID stands for no id in the columns of a key.
const NoID ID = "00000000-0000-0000-0000-000000000000"

// OrNoID returns an id for a column of a key: NoID if text is "".
func OrNoID(text string) ID {
	if text == "" {
		return NoID
	}
	return ID(text)
}

// IDs returns a list of ids as an argument of a statement.
func IDs(texts []string) []ID {
	list := make([]ID, len(texts))
	for i, text := range texts {
		list[i] = ID(text)
	}
	return list
}

// errNotID means that an argument of a statement is not an id. PostgreSQL's client closes the connection because of it,
// although the server is well.
var errNotID = errors.New("not an id")

// bytes decodes the canonical text form.
func (id ID) bytes() (b [16]byte, err error) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return b, fmt.Errorf("%q is %w", string(id), errNotID)
	}
	var digits [32]byte
	copy(digits[:8], id[:8])
	copy(digits[8:12], id[9:13])
	copy(digits[12:16], id[14:18])
	copy(digits[16:20], id[19:23])
	copy(digits[20:], id[24:])
	if _, err := hex.Decode(b[:], digits[:]); err != nil {
		return b, fmt.Errorf("%q is %w", string(id), errNotID)
	}
	return b, nil
}

// set encodes the canonical text form.
func (id *ID) set(b [16]byte) {
	if b == ([16]byte{}) {
		*id = ""
		return
	}
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	*id = ID(text[:])
}

// Value implements driver.Valuer for SQLite.
func (id ID) Value() (driver.Value, error) {
	if id == "" {
		return nil, nil
	}
	b, err := id.bytes()
	return b[:], err
}

// Scan implements sql.Scanner for SQLite.
func (id *ID) Scan(from any) error {
	switch from := from.(type) {
	case nil:
		*id = ""
		return nil
	case []byte:
		if len(from) == 16 {
			id.set([16]byte(from))
			return nil
		}
	}
	return fmt.Errorf("%.40v, a %T, is not an id of 16 bytes", from, from)
}

// UUIDValue implements pgtype.UUIDValuer.
func (id ID) UUIDValue() (pgtype.UUID, error) {
	if id == "" {
		return pgtype.UUID{}, nil
	}
	b, err := id.bytes()
	return pgtype.UUID{Bytes: b, Valid: true}, err
}

// ScanUUID implements pgtype.UUIDScanner.
func (id *ID) ScanUUID(from pgtype.UUID) error {
	*id = ""
	if from.Valid {
		id.set(from.Bytes)
	}
	return nil
}

// appendHex appends the id as hexadecimal digits in quotation marks, or null for none.
func (id ID) appendHex(b []byte) ([]byte, error) {
	if id == "" {
		return append(b, "null"...), nil
	}
	raw, err := id.bytes()
	if err != nil {
		return b, err
	}
	return append(hex.AppendEncode(append(b, '"'), raw[:]), '"'), nil
}
