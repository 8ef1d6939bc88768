package emails

import (
	"context"
	"errors"
	"io"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// downloadPurpose makes a download token invalid for any other purpose.
const downloadPurpose = "download"

// Attachments returns a page of an email's attachments.
func (s *Service) Attachments(ctx context.Context, teamID, emailID string, p page.Page) ([]Attachment, bool, error) {
	if err := exists(ctx, s.d.Reader, teamID, emailID); err != nil {
		return nil, false, err
	}
	return pageOfAttachments(ctx, s.d.Reader, teamID, emailID, p)
}

// Attachment returns one attachment of an email.
func (s *Service) Attachment(ctx context.Context, teamID, emailID, attachmentID string) (Attachment, error) {
	if err := exists(ctx, s.d.Reader, teamID, emailID); err != nil {
		return Attachment{}, err
	}
	return getAttachment(ctx, s.d.Reader, teamID, emailID, attachmentID)
}

// DownloadURL returns a URL from which the attachment can be downloaded without an API key until it expires.
func (s *Service) DownloadURL(a *Attachment, now time.Time) (link string, expires time.Time) {
	expires = keyring.LinkExpiry(now)
	token := s.keys.Sign(downloadPurpose, expires, a.TeamID, a.EmailID, a.ID)
	return s.c.PublicURL + "/download/" + token, expires
}

// Download opens the attachment that a token of DownloadURL names. The caller closes the content.
func (s *Service) Download(ctx context.Context, token string) (Attachment, io.ReadCloser, error) {
	parts, err := s.keys.Verify(downloadPurpose, token, time.Now())
	if errors.Is(err, keyring.ErrExpired) {
		return Attachment{}, nil, fault.Forbiddenf("", "This link has expired. Ask the API for a new one.")
	}
	if err != nil || len(parts) != 3 {
		return Attachment{}, nil, fault.NotFoundf("Attachment not found")
	}
	if err := s.teams.CheckActive(ctx, parts[0]); err != nil {
		return Attachment{}, nil, err
	}
	a, err := getAttachment(ctx, s.d.Reader, parts[0], parts[1], parts[2])
	if err != nil {
		return a, nil, err
	}
	if a.blobKey == "" {
		return a, nil, fault.NotFoundf("The attachment is not fetched yet")
	}
	content, err := s.open(ctx, &a)
	if isLost(err) {
		// A file is deleted after its row: the row may have been deleted since it was read.
		if _, gone := getAttachment(ctx, s.d.Reader, parts[0], parts[1], parts[2]); gone != nil {
			return a, nil, gone
		}
	}
	return a, content, unreadable(ctx, err)
}

func isLost(err error) bool { return errors.Is(err, blob.ErrNotFound) || errors.Is(err, db.ErrNoRows) }

// unreadable converts an error of reading content: to a fault of kind Unavailable where trying again may help. Lost
// content, cancellation and other faults are returned unchanged.
func unreadable(ctx context.Context, err error) error {
	if err == nil || isLost(err) || ctx.Err() != nil || fault.KindOf(err) != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "", "The attachment cannot be read at present. Try again in a moment.").Because(
		err)
}

// shareClaims is the payload of a shared link's token.
type shareClaims struct {
	Team  string `json:"team"`
	Email string `json:"email"`
}

// sharePurpose makes a share token invalid for any other purpose.
const sharePurpose = "share"

// Share returns a URL at which anybody can read the email, for the time that ShareLifetime returns.
func (s *Service) Share(ctx context.Context, teamID, emailID, expiresIn string) (string, error) {
	lifetime, err := ShareLifetime(expiresIn)
	if err != nil {
		return "", err
	}
	if err := exists(ctx, s.d.Reader, teamID, emailID); err != nil {
		return "", err
	}
	token, err := s.keys.JWT(sharePurpose, shareClaims{teamID, emailID}, time.Now(), lifetime)
	if err != nil {
		return "", err
	}
	return s.c.PublicURL + "/shared?token=" + url.QueryEscape(token), nil
}

// ShareLifetime parses how long a shared link works, for sent and for received emails: a duration such as "2 hours", at
// most 48 hours; "" means the longest.
func ShareLifetime(expiresIn string) (time.Duration, error) {
	if expiresIn == "" {
		return shareDefault, nil
	}
	d, err := schedule.Duration(expiresIn)
	if err != nil {
		return 0, fault.Invalidf("expires_in", "Invalid `expires_in` field: %s", err).Because(err)
	}
	if d <= 0 || d > shareDefault {
		return 0, fault.Invalidf("expires_in", "The `expires_in` field must be more than nothing and at most 48 hours.")
	}
	return d, nil
}

// Shared returns the email that a shared link's token names, with its attachments.
func (s *Service) Shared(ctx context.Context, token string) (Email, []Attachment, error) {
	var c shareClaims
	if err := s.keys.VerifyJWT(sharePurpose, token, time.Now(), &c); err != nil {
		return Email{}, nil, fault.NotFoundf("This link is not valid, or it has expired.")
	}
	if err := s.teams.CheckActive(ctx, c.Team); err != nil {
		return Email{}, nil, err
	}
	e, err := s.Get(ctx, c.Team, c.Email)
	if err != nil {
		return e, nil, err
	}
	files, err := attachmentsOf(ctx, s.d.Reader, c.Team, c.Email)
	return e, files, err
}
