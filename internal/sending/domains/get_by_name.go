package domains

import "context"

// GetByName returns the team's domain with the given name, which must be in lower-case ASCII. The domain may be in any
// state. If the team has not added the domain, GetByName returns a NotFound fault.
func (s *Service) GetByName(ctx context.Context, teamID, name string) (Domain, error) {
	return domainByName(ctx, s.DB.Reader, teamID, name)
}
