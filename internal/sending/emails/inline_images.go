package emails

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// Limits on the inline images that a page shows.
const (
	InlineImagesMax  = 50       // images of an email
	InlineImagesSize = 10 << 20 // bytes of all of them
)

// InlineImages returns the attachments of an email that its HTML shows as images. They are of types that run nothing in
// a browser, at most InlineImagesMax and at most InlineImagesSize bytes in all. Files that are not fetched yet are left
// out. The second result is the memory in bytes that reading them takes.
func (s *Service) InlineImages(ctx context.Context, e *Email) (shown []Attachment, memory int64, err error) {
	if e.HTML == nil || !strings.Contains(strings.ToLower(*e.HTML), "cid:") {
		return nil, 0, nil
	}
	all, err := attachmentsOf(ctx, s.DB.Reader, e.TeamID, e.ID)
	if err != nil {
		return nil, 0, fmt.Errorf("load attachments of email %s: %w", e.ID, err)
	}
	for _, a := range all {
		kind, _, _ := strings.Cut(strings.ToLower(a.ContentType), ";")
		a.ContentType = strings.TrimSpace(kind)
		if !a.Inline() || !mailparse.IsSafeImage(a.ContentType) || a.blobKey == "" || len(shown) == InlineImagesMax ||
			memory+a.Size > InlineImagesSize {
			continue
		}
		memory += a.Size
		shown = append(shown, a)
	}
	if len(shown) > 0 && e.isRaw { // the message has them, and is read as a whole
		size, err := s.Size(ctx, e.TeamID, e.ID)
		return shown, memory + 2*size, err
	}
	return shown, memory, nil
}

// ReadInline reads images of one email. Images that cannot be read are left out, because the HTML without them is more
// useful than an error.
func (s *Service) ReadInline(ctx context.Context, e *Email, images []Attachment) ([]mailparse.File, error) {
	var inMessage []mailparse.File
	var files []mailparse.File
	for i := range images {
		a := &images[i]
		f := mailparse.File{ContentType: a.ContentType, ContentID: a.ContentID}
		if _, number, ok := strings.Cut(a.blobKey, fileMark); ok {
			if inMessage == nil {
				text, err := s.raw(ctx, e.TeamID, e.ID)
				if err != nil && !isUnreadable(err) {
					return nil, err
				}
				inMessage = append([]mailparse.File{}, mailparse.Parse(text).Files...) // not nil, also without files
			}
			if n, err := strconv.Atoi(number); err == nil && n < len(inMessage) {
				f.Content = inMessage[n].Content
				files = append(files, f)
			}
			continue
		}
		content, err := s.readContent(ctx, a)
		if isUnreadable(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f.Content = content
		files = append(files, f)
	}
	return files, nil
}

// isUnreadable reports whether an error means that a file is lost or cannot be read at present.
func isUnreadable(err error) bool {
	_, ok := errors.AsType[*FileError](err)
	return ok || isLost(err)
}
