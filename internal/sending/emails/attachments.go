package emails

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"io"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

// storeAttachments stores the content of attachments durably, before the email is accepted.
func (s *Service) storeAttachments(ctx context.Context, teamID string, d *draft) (kept []Attachment, err error) {
	if d.raw != nil {
		return s.storeRaw(ctx, teamID, d)
	}
	defer func() {
		if err != nil {
			for i := range kept {
				s.discardFiles(ctx, &kept[i])
			}
		}
	}()
	for i, u := range d.Attachments {
		a := Attachment{ID: id.New(), TeamID: teamID, Filename: u.Filename, ContentType: u.ContentType,
			ContentID: u.ContentID,
			path:      u.Path}
		if u.Path != "" {
			if err := s.checkPath(u.Path, i); err != nil {
				return kept, err
			}
		} else {
			a.Size = int64(len(u.Content))
			a.blobKey = newFileKey()
			if _, err := s.Blobs.Put(ctx, a.blobKey, bytes.NewReader(u.Content)); err != nil {
				return kept, fault.New(fault.Unavailable, "",
					"The attachments cannot be stored at present. Try again in a moment.").
					Because(fmt.Errorf("store attachment: %w", err))
			}
		}
		kept = append(kept, a)
	}
	return kept, nil
}

// checkPath returns a fault if the URL of the attachment with the given index must not be fetched.
func (s *Service) checkPath(path string, i int) error {
	if _, err := s.Guard.CheckURL(path); err != nil {
		return fault.New(fault.BadAttachment, fmt.Sprintf("attachments[%d].path", i),
			"The `path` of an attachment cannot be fetched: %s (`attachments[%d].path`).", err, i).Because(err)
	}
	return nil
}

// checkPaths checks all URLs of the draft's attachments.
func (s *Service) checkPaths(d *draft) error {
	for i, u := range d.Attachments {
		if u.Path == "" {
			continue
		}
		if err := s.checkPath(u.Path, i); err != nil {
			return err
		}
	}
	return nil
}

// discardFiles deletes attachment files to which no database row refers. If a file cannot be deleted, a later sweep
// deletes it.
func (s *Service) discardFiles(ctx context.Context, list ...*Attachment) {
	for _, a := range list {
		if a.blobKey != "" {
			s.Blobs.Delete(context.WithoutCancel(ctx), a.blobKey)
		}
	}
}

// downloadPurpose is the purpose for which download tokens are signed. Tokens signed for any other purpose are refused.
const downloadPurpose = "download"

// Attachments returns a page of an email's attachments.
func (s *Service) Attachments(ctx context.Context, teamID, emailID string, p page.Page) ([]Attachment, bool, error) {
	if err := exists(ctx, s.DB.Reader, teamID, emailID); err != nil {
		return nil, false, err
	}
	return pageOfAttachments(ctx, s.DB.Reader, teamID, emailID, p)
}

// Attachment returns a single attachment from an email.
func (s *Service) Attachment(ctx context.Context, teamID, emailID, attachmentID string) (Attachment, error) {
	if err := exists(ctx, s.DB.Reader, teamID, emailID); err != nil {
		return Attachment{}, err
	}
	return getAttachment(ctx, s.DB.Reader, teamID, emailID, attachmentID)
}

// DownloadURL returns a URL from which the attachment can be downloaded without an API key, until the URL expires.
func (s *Service) DownloadURL(a *Attachment, now time.Time) (link string, expires time.Time) {
	expires = keyring.LinkExpiry(now)
	token := s.Keys.Sign(downloadPurpose, expires, a.TeamID, a.EmailID, a.ID)
	return s.c.PublicURL + "/download/" + token, expires
}

// Download opens the attachment specified by a token from DownloadURL. The caller must close the returned reader.
func (s *Service) Download(ctx context.Context, token string) (Attachment, io.ReadCloser, error) {
	ids, err := s.Keys.Verify(downloadPurpose, token, time.Now())
	if errors.Is(err, keyring.ErrExpired) {
		return Attachment{}, nil, fault.Forbiddenf("", "This link has expired. Ask the API for a new one.")
	}
	if err != nil || len(ids) != 3 {
		return Attachment{}, nil, fault.NotFoundf("Attachment not found")
	}
	if err := s.Teams.CheckActive(ctx, ids[0]); err != nil {
		return Attachment{}, nil, err
	}
	a, err := getAttachment(ctx, s.DB.Reader, ids[0], ids[1], ids[2])
	if err != nil {
		return a, nil, err
	}
	if a.blobKey == "" {
		return a, nil, fault.NotFoundf("The attachment is not fetched yet")
	}
	content, err := s.open(ctx, &a)
	if isLost(err) {
		// A row is deleted before its file. If the file is missing, the row may have been deleted after it was read.
		if _, gone := getAttachment(ctx, s.DB.Reader, ids[0], ids[1], ids[2]); gone != nil {
			return a, nil, gone
		}
	}
	return a, content, unreadable(ctx, err)
}

func isLost(err error) bool { return errors.Is(err, blob.ErrNotFound) || errors.Is(err, db.ErrNoRows) }

// unreadable converts an error in reading content to a fault of kind Unavailable if a retry may succeed. Errors about
// lost content, cancellation and other faults are returned unchanged.
func unreadable(ctx context.Context, err error) error {
	if err == nil || isLost(err) || ctx.Err() != nil || fault.KindOf(err) != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "", "The attachment cannot be read at present. Try again in a moment.").Because(
		err)
}
