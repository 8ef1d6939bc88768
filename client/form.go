package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
)

// form is a request body of type multipart/form-data with one file.
type form struct {
	file     io.Reader
	fileName string
	fields   []formField

	began    bool
	seekable bool          // the file can be read again
	start    int64         // position of the file before the first attempt
	ended    chan struct{} // closed when the last attempt no longer reads the file
}

// formField is a field of a form. A value that is not a string is encoded as JSON; nil and "" are left out.
type formField struct {
	name  string
	value any
}

// encode returns a reader of the form, and its media type. The caller must close the reader.
func (f *form) encode() (io.ReadCloser, string) {
	if s, ok := f.file.(io.Seeker); ok && !f.began {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			f.start, f.seekable = at, true
		}
	}
	f.began = true
	r, w := io.Pipe()
	m := multipart.NewWriter(w)
	ended := make(chan struct{})
	f.ended = ended
	go func() {
		defer close(ended)
		w.CloseWithError(f.write(m))
	}()
	return r, m.FormDataContentType()
}

func (f *form) write(m *multipart.Writer) error {
	for _, field := range f.fields {
		text, isText := field.value.(string)
		if field.value == nil || isText && text == "" {
			continue
		}
		if !isText {
			encoded, err := json.Marshal(field.value)
			if err != nil {
				return fmt.Errorf("encode the field %s: %w", field.name, err)
			}
			text = string(encoded)
		}
		if err := m.WriteField(field.name, text); err != nil {
			return err
		}
	}
	part, err := m.CreateFormFile("file", f.fileName)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, f.file); err != nil {
		return fmt.Errorf("read the file: %w", err)
	}
	return m.Close()
}

// rewind prepares the form for another attempt. First it waits until the last attempt no longer reads the file, because
// a late read would take a part of the file from the next attempt. The caller must have closed the reader of the last
// attempt. The result is false if the file cannot be read again, or if ctx ends first. The receiver may be nil.
func (f *form) rewind(ctx context.Context) bool {
	if f == nil || !f.began {
		return true
	}
	if !f.seekable {
		return false
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
		return false
	}
	_, err := f.file.(io.Seeker).Seek(f.start, io.SeekStart)
	return err == nil
}
