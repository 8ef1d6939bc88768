package emails

import (
	"context"
	"errors"
	"io"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/schedule"
)

// downloadPurpose keeps a download token from serving anywhere else.
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

// DownloadURL is an address from which the attachment can be read without a key until it expires.
func (s *Service) DownloadURL(a *Attachment, now time.Time) (link string, expires time.Time) {
	expires = linkExpiry(now)
	token := s.keys.Sign(downloadPurpose, expires, a.TeamID, a.EmailID, a.ID)
	return s.c.PublicURL + "/download/" + token, expires
}

// Download opens the attachment that a token of DownloadURL stands for. Whoever asked closes the content.
func (s *Service) Download(ctx context.Context, token string) (Attachment, io.ReadCloser, error) {
	parts, err := s.keys.Verify(downloadPurpose, token, time.Now())
	if errors.Is(err, keyring.ErrExpired) {
		return Attachment{}, nil, fault.Forbiddenf("", "This link has expired. Ask the API for a new one.")
	}
	if err != nil || len(parts) != 3 {
		return Attachment{}, nil, fault.NotFoundf("Attachment not found")
	}
	if err := s.standing(ctx, parts[0]); err != nil {
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
		// A file goes after its row: it may have been deleted since the row was read.
		if _, gone := getAttachment(ctx, s.d.Reader, parts[0], parts[1], parts[2]); gone != nil {
			return a, nil, gone
		}
	}
	return a, content, unread(ctx, err)
}

func isLost(err error) bool { return errors.Is(err, blob.ErrNotFound) || errors.Is(err, db.ErrNoRows) }

// unread is what becomes of an error by which content could not be read: a fault where trying again may help, and not
// where the content is lost.
func unread(ctx context.Context, err error) error {
	if err == nil || isLost(err) || ctx.Err() != nil || fault.KindOf(err) != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "", "The attachment cannot be read at present. Try again in a moment.").Because(err)
}

// standing fails when a team is no more. Links of a deleted team lead nowhere from its deletion on, also to what is not
// taken away yet.
func (s *Service) standing(ctx context.Context, teamID string) error {
	_, err := s.teams.Get(ctx, teamID)
	if fault.KindOf(err) == fault.NotFound {
		return fault.NotFoundf("There is nothing at this address.")
	}
	return err
}

// shareClaims are what a shared link's token says.
type shareClaims struct {
	Team  string `json:"team"`
	Email string `json:"email"`
}

// sharePurpose keeps a share token from serving anywhere else.
const sharePurpose = "share"

// Share returns an address under which anybody can read the email, for a time as ShareLifetime has it.
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

// ShareLifetime is how long a shared link works, of sent and of received emails: a time such as "2 hours", at most 48
// hours; "" is the longest.
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

// Shared returns the email that a shared link's token stands for, with its attachments.
func (s *Service) Shared(ctx context.Context, token string) (Email, []Attachment, error) {
	var c shareClaims
	if err := s.keys.VerifyJWT(sharePurpose, token, time.Now(), &c); err != nil {
		return Email{}, nil, fault.NotFoundf("This link is not valid, or it has expired.")
	}
	if err := s.standing(ctx, c.Team); err != nil {
		return Email{}, nil, err
	}
	e, err := s.Get(ctx, c.Team, c.Email)
	if err != nil {
		return e, nil, err
	}
	files, err := attachmentsOf(ctx, s.d.Reader, c.Team, c.Email)
	return e, files, err
}
