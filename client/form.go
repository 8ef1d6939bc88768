package client

import (
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

	began bool
	start int64 // position of the file before the first attempt
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
			f.start = at
		}
	}
	f.began = true
	r, w := io.Pipe()
	m := multipart.NewWriter(w)
	go func() { w.CloseWithError(f.write(m)) }()
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

// rewind prepares the form for another attempt. It returns false if the file cannot be read again. The receiver may be
// nil.
func (f *form) rewind() bool {
	if f == nil || !f.began {
		return true
	}
	s, ok := f.file.(io.Seeker)
	if !ok {
		return false
	}
	_, err := s.Seek(f.start, io.SeekStart)
	return err == nil
}
