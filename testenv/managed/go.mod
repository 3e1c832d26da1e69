// What the tests of docs/managed-pods.md need beside the control plane: a CustomResourceDefinition, from its module pinned here and in go.sum, and a
// webhook in drain-cleaner.go.
module managed

go 1.26.0

require github.com/argoproj/argo-rollouts v1.10.1
