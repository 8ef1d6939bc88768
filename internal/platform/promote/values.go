package promote

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// fromSQLite converts a row in place to the values that PostgreSQL takes: ids are [16]byte.
func (t *table) fromSQLite(row []any) error {
	for i, c := range t.columns {
		v, err := fromSQLite(c.kind, row[i])
		if err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
		row[i] = v
	}
	return nil
}

// fromSQLite converts a value of SQLite.
func fromSQLite(kind string, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch x := v.(type) {
	case []byte:
		switch {
		case kind == "bytea" && x == nil:
			return []byte{}, nil
		case kind == "bytea":
			return x, nil
		case kind == "uuid" && len(x) == 16:
			return [16]byte(x), nil
		}
	case int64:
		switch kind {
		case "boolean":
			return x != 0, nil
		case "bigint", "integer", "smallint":
			return x, nil
		case "double precision":
			return float64(x), nil
		}
	case float64:
		if kind == "double precision" {
			return x, nil
		}
	case string:
		if kind == "text" {
			if strings.ContainsRune(x, 0) {
				return nil, fmt.Errorf("the text %.60q has a NUL character, which PostgreSQL does not store", x)
			}
			return x, nil
		}
	}
	return nil, fmt.Errorf("a value of the type %T does not fit into a column of the type %s", v, kind)
}

// toSQLite converts a value of a key back to the one of SQLite.
func toSQLite(v any) any {
	switch x := v.(type) {
	case [16]byte:
		return x[:]
	case bool:
		if x {
			return int64(1)
		}
		return int64(0)
	}
	return v
}

// fromPostgres converts a value that PostgreSQL returned to the form of fromSQLite.
func fromPostgres(v any) any {
	switch x := v.(type) {
	case int16:
		return int64(x)
	case int32:
		return int64(x)
	case []byte:
		if x == nil {
			return []byte{}
		}
	}
	return v
}

// checksum is the sum of the hashes of rows. It does not depend on their order.
type checksum struct {
	rows int64
	sum  [4]uint64
	buf  []byte
}

// add adds a row in the form of fromSQLite.
func (c *checksum) add(row []any) error {
	c.rows++
	b := c.buf[:0]
	for _, v := range row {
		var err error
		if b, err = appendValue(b, v); err != nil {
			return err
		}
	}
	c.buf = b
	h := sha256.Sum256(b)
	for i := range c.sum {
		c.sum[i] += binary.LittleEndian.Uint64(h[8*i:])
	}
	return nil
}

func (c *checksum) equals(other *checksum) bool { return c.rows == other.rows && c.sum == other.sum }

// appendValue appends an encoding of the value that no other value has.
func appendValue(b []byte, v any) ([]byte, error) {
	withSize := func(kind byte, s string) []byte {
		return append(binary.AppendUvarint(append(b, kind), uint64(len(s))), s...)
	}
	switch x := v.(type) {
	case nil:
		return append(b, 0), nil
	case bool:
		if x {
			return append(b, 1, 1), nil
		}
		return append(b, 1, 0), nil
	case int64:
		return binary.AppendVarint(append(b, 2), x), nil
	case float64:
		return binary.LittleEndian.AppendUint64(append(b, 3), math.Float64bits(x)), nil
	case string:
		return withSize(4, x), nil
	case []byte:
		return withSize(5, string(x)), nil
	case [16]byte:
		return append(append(b, 6), x[:]...), nil
	}
	return nil, fmt.Errorf("a value of the type %T cannot be compared", v)
}

// encodeKey returns a key in the form of fromSQLite as a text, from which decodeKey makes the key again.
func encodeKey(key []any) (string, error) {
	var b []byte
	var err error
	for _, v := range key {
		if b, err = appendValue(b, v); err != nil {
			return "", err
		}
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// decodeKey returns the n values of a key.
func decodeKey(text string, n int) (key []any, err error) {
	b, err := base64.StdEncoding.DecodeString(text)
	for err == nil && len(b) > 0 {
		var v any
		if v, b, err = decodeValue(b); err == nil {
			key = append(key, v)
		}
	}
	if err == nil && len(key) != n {
		err = errBadKey
	}
	if err != nil {
		return nil, fmt.Errorf("the key %q: %w", text, err)
	}
	return key, nil
}

var errBadKey = fmt.Errorf("it is damaged")

// decodeValue decodes the first value that appendValue has encoded, and returns the rest.
func decodeValue(b []byte) (v any, rest []byte, err error) {
	kind, b := b[0], b[1:]
	switch kind {
	case 1:
		if len(b) >= 1 {
			return b[0] == 1, b[1:], nil
		}
	case 2:
		if x, size := binary.Varint(b); size > 0 {
			return x, b[size:], nil
		}
	case 4, 5:
		l, size := binary.Uvarint(b)
		if size <= 0 || l > uint64(len(b)-size) {
			break
		}
		value := b[size : size+int(l)]
		if rest = b[size+int(l):]; kind == 4 {
			return string(value), rest, nil
		}
		return slices.Clone(value), rest, nil
	case 6:
		if len(b) >= 16 {
			return [16]byte(b), b[16:], nil
		}
	}
	return nil, nil, errBadKey
}
