; running sum
; problem   points=1200 costly=0  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    scan

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [1 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l5.end ]
  %v4 = icmp slt i64 0, %size0
  br i1 %v4, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l3.body ], [ %l5.next, %l6.end ]
  store float 0x0000000000000000, ptr %s1, align 4
  br i1 true, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ 0, %l5.body ], [ %l6.next, %l6.body ]
  %v7 = load float, ptr %s1, align 4
  %v8 = mul i64 %l5.i, 8
  %v9 = add i64 %v8, %l6.i
  %v10 = getelementptr float, ptr %p0, i64 %v9
  %v11 = load float, ptr %v10
  %v12 = fadd contract float %v7, %v11
  store float %v12, ptr %s1, align 4
  %v13 = fmul contract float %v12, 0x4000000000000000
  %v14 = getelementptr float, ptr %p1, i64 %v9
  %v15 = load float, ptr %v14
  %v16 = fadd contract float %v13, %v15
  %v17 = getelementptr float, ptr %p2, i64 %v9
  store float %v16, ptr %v17
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v18 = icmp slt i64 %l6.next, 8
  br i1 %v18, label %l6.body, label %l6.end
l6.end:
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v19 = icmp slt i64 %l5.next, %size0
  br i1 %v19, label %l5.body, label %l5.end
l5.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v20 = icmp slt i64 %l3.next, %last
  br i1 %v20, label %l3.body, label %l3.end
l3.end:
  ret void
}
