package emails

import (
	"context"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// shareClaims is the payload of the token in a shared link.
type shareClaims struct {
	Team  string `json:"team"`
	Email string `json:"email"`
}

// sharePurpose is the purpose for which share tokens are signed. Tokens signed for any other purpose are refused.
const sharePurpose = "share"

// Share returns a URL at which anyone can read the email. The parameter expiresIn determines how long the URL works;
// see ShareLifetime.
func (s *Service) Share(ctx context.Context, teamID, emailID, expiresIn string) (string, error) {
	lifetime, err := ShareLifetime(expiresIn)
	if err != nil {
		return "", err
	}
	if err := exists(ctx, s.DB.Reader, teamID, emailID); err != nil {
		return "", err
	}
	token, err := s.Keys.JWT(sharePurpose, shareClaims{teamID, emailID}, time.Now(), lifetime)
	if err != nil {
		return "", err
	}
	return s.c.PublicURL + "/shared?token=" + url.QueryEscape(token), nil
}

// ShareLifetime parses the lifetime of a shared link to a sent or received email, such as "2 hours". The maximum, and
// the default for "", is 48 hours.
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

// Shared returns the email to which the token in a shared link refers, with its attachments.
func (s *Service) Shared(ctx context.Context, token string) (Email, []Attachment, error) {
	var c shareClaims
	if err := s.Keys.VerifyJWT(sharePurpose, token, time.Now(), &c); err != nil {
		return Email{}, nil, fault.NotFoundf("This link is not valid, or it has expired.")
	}
	if err := s.Teams.CheckActive(ctx, c.Team); err != nil {
		return Email{}, nil, err
	}
	e, err := s.Get(ctx, c.Team, c.Email)
	if err != nil {
		return e, nil, err
	}
	files, err := attachmentsOf(ctx, s.DB.Reader, c.Team, c.Email)
	return e, files, err
}
