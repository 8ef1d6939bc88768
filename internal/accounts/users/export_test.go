package users

import "context"

// CrowdHashes has as many wait for a hash as may, until leave is called.
func (s *Service) CrowdHashes(ctx context.Context) (leave func(), err error) {
	if err := s.hash.acquire(ctx); err != nil {
		return nil, err
	}
	s.hash.release()
	for range maxWaiting {
		s.hash.waiting <- struct{}{}
	}
	return func() {
		for range maxWaiting {
			<-s.hash.waiting
		}
	}, nil
}
