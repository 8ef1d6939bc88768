package domains

import "context"

// GetByName returns a team's domain by its name, in lower-case ASCII, in any state. If the team has not added the
// domain, the error is a NotFound fault.
func (s *Service) GetByName(ctx context.Context, teamID, name string) (Domain, error) {
	return domainByName(ctx, s.DB.Reader, teamID, name)
}
