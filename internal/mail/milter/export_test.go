package milter

import (
	"errors"
	"io"
)

// Fields returns all fields in a header, as split by fieldReader.
func Fields(raw io.ReaderAt, size int64) (fields []Field, body int64, err error) {
	r := newFieldReader(raw, size)
	for {
		name, value, err := r.next()
		if errors.Is(err, io.EOF) {
			return fields, r.offset, nil
		}
		if err != nil {
			return nil, 0, err
		}
		fields = append(fields, Field{name, value})
	}
}
