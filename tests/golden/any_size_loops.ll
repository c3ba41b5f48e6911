; elementwise
; problem   points=1200 costly=0  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    loops

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %v1 = icmp slt i64 %first, %last
  br i1 %v1, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l4.end ]
  %v3 = icmp slt i64 0, %size0
  br i1 %v3, label %l4.body, label %l4.end
l4.body:
  %l4.i = phi i64 [ 0, %l2.body ], [ %l4.next, %l4.body ]
  %v5 = mul i64 %l4.i, 8
  %v6 = getelementptr float, ptr %p0, i64 %v5
  %v7 = load <8 x float>, ptr %v6, align 4
  %v8 = load <8 x float>, ptr %p1, align 4
  %v9 = fadd contract <8 x float> %v7, %v8
  %v10 = fcmp olt <8 x float> %v9, splat (float 0x0000000000000000)
  %v11 = select <8 x i1> %v10, <8 x float> splat (float 0x0000000000000000), <8 x float> %v9
  %v12 = getelementptr float, ptr %p2, i64 %v5
  store <8 x float> %v11, ptr %v12, align 4
  %v13 = getelementptr float, ptr %p3, i64 %v5
  store <8 x float> %v9, ptr %v13, align 4
  %l4.next = add nuw nsw i64 %l4.i, 1
  %v14 = icmp slt i64 %l4.next, %size0
  br i1 %v14, label %l4.body, label %l4.end
l4.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v15 = icmp slt i64 %l2.next, %last
  br i1 %v15, label %l2.body, label %l2.end
l2.end:
  ret void
}
