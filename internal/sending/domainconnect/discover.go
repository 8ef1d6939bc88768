package domainconnect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	answerMax = 64 << 10 // bytes of an answer of a provider
	urlMax    = 2048
)

// place is the form of the record at _domainconnect: a host, and perhaps a path.
var place = regexp.MustCompile(`^[A-Za-z0-9.-]+\.[A-Za-z0-9-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$`)

// settings is the part of a provider's answer that is used (section 7 of the draft).
type settings struct {
	URLSyncUX string `json:"urlSyncUX"`
	URLAPI    string `json:"urlAPI"`
}

// ApplyURL returns the signed link to the page on which the provider of a zone asks the owner whether to install the
// wanted records of a domain. It returns "" if the provider does not use Domain Connect or does not have the template.
func (s *Service) ApplyURL(ctx context.Context, zone, domain string, wanted []domains.Record) (string, error) {
	parameters, ok := s.parameters(zone, domain, wanted)
	if s.c.ProviderID == "" || !ok {
		return "", nil
	}
	found, err := s.settings(ctx, zone)
	if err != nil || found.URLSyncUX == "" || found.URLAPI == "" {
		return "", err
	}
	template := "/v2/domainTemplates/providers/" + url.PathEscape(s.c.ProviderID) + "/services/" + url.PathEscape(s.c.ServiceID)
	switch _, err := s.fetch(ctx, strings.TrimSuffix(found.URLAPI, "/")+template); {
	case isStatus(err, http.StatusNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("ask whether the DNS provider has the template: %w", err)
	}
	query, err := s.sign(ctx, parameters)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(found.URLSyncUX, "/") + template + "/apply?" + query, nil
}

// settings finds the provider of a zone. The result is empty if the zone's provider does not use Domain Connect.
func (s *Service) settings(ctx context.Context, zone string) (found settings, err error) {
	texts, err := s.DNS.TXT(ctx, "_domainconnect."+zone)
	switch {
	case errors.Is(err, resolve.ErrNotFound):
		return found, nil
	case err != nil:
		return found, fmt.Errorf("look up _domainconnect.%s: %w", zone, err)
	case len(texts) != 1 || !place.MatchString(texts[0]):
		return found, fmt.Errorf("the TXT record at _domainconnect.%s names no host", zone)
	}
	data, err := s.fetch(ctx, "https://"+strings.TrimSuffix(texts[0], "/")+"/v2/"+url.PathEscape(zone)+"/settings")
	switch {
	case isStatus(err, http.StatusNotFound): // the record is of an earlier provider
		return found, nil
	case err != nil:
		return found, fmt.Errorf("ask the DNS provider of %s for its settings: %w", zone, err)
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return settings{}, fmt.Errorf("the settings of the DNS provider of %s are not valid: %w", zone, err)
	}
	for _, text := range []string{found.URLSyncUX, found.URLAPI} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
			u.Fragment != "" || len(text) > urlMax) {
			return settings{}, fmt.Errorf("the settings of the DNS provider of %s have a URL that is not valid", zone)
		}
	}
	return found, nil
}

// fetch downloads an answer of a provider. If the status is a success other than 200, fetch returns no data and no
// error.
func (s *Service) fetch(ctx context.Context, text string) ([]byte, error) {
	data, err := s.Fetch(ctx, text, answerMax)
	if e, ok := errors.AsType[*netguard.StatusError](err); ok && e.Code/100 == 2 {
		return nil, nil
	}
	return data, err
}

func isStatus(err error, code int) bool {
	e, ok := errors.AsType[*netguard.StatusError](err)
	return ok && e.Code == code
}
